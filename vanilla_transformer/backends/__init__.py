"""Engines that decode for the `Translator`: one module for each engine."""
