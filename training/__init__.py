"""Everything needed to train: corpora, token batches, loss, trainer and recipes."""
