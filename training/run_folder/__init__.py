"""The folder of a run: its record, its checkpoints, and averages of them."""
