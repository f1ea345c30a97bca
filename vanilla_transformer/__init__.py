"""The Transformer of "Attention Is All You Need" as a first-class Hugging Face model."""
