"""Folders and the Hub: auto classes, loading, exporting, checking and pushing."""
