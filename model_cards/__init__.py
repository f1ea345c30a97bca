"""The template of model cards, and a folder for each released model."""
