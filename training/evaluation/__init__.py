"""Test sets, scores, and metrics."""
