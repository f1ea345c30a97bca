"""Text in, text out: the translator, and what it does to texts before and after a model."""
