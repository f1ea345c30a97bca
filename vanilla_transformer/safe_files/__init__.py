"""Writes that are whole or not there, and locks."""
