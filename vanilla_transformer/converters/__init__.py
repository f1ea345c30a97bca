"""Converters between this package's models and those of other libraries: one module for each library."""
