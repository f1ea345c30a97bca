"""The keys of a recipe, as dataclasses for `DataclassParser`."""
