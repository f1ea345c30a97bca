"""Training: corpora, vocabularies, token batches, objectives, the trainer, evaluation and recipes."""
