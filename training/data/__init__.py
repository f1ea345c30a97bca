"""From files to batches: corpora, cleaning, vocabularies, token batches and noise."""
