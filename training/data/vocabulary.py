"""Learns subword vocabularies from a corpus: one for both languages, or one for each."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerFast

from vanilla_transformer.command_line.standard_streams import on_terminal
from vanilla_transformer.models.tokenization_vanilla_transformer import save_tokenizers, train_tokenizer
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments


def learn_vocabularies(text: Dataset | IterableDataset, options: VocabularyArguments, folder: str | Path) -> list[int]:
    """Learns from the columns `source` and `target`, saves the tokenizers in `folder`, and returns their sizes.

    A separate target tokenizer is saved as `save_tokenizers` does, in the subfolder `target`.

    Args:
        text: The parallel text.
        options: How to learn.
        folder: The folder for the tokenizers.
    """
    columns = [["source"], ["target"]] if options.separate else [["source", "target"]]
    tokenizers = [_learn(text, names, options) for names in columns]
    save_tokenizers(folder, *tokenizers)
    return [len(tokenizer) for tokenizer in tokenizers]


def _learn(
    text: Dataset | IterableDataset, columns: list[str], options: VocabularyArguments
) -> PreTrainedTokenizerFast:
    return train_tokenizer(
        sentences(text, columns, options.vocabulary_pairs),
        vocab_size=options.vocab_size,
        algorithm=options.algorithm,
        normalization=options.normalization,
        lowercase=options.lowercase,
        min_frequency=options.min_frequency,
        show_progress=on_terminal(sys.stderr),
    )


def sentences(dataset: Dataset | IterableDataset, columns: list[str], pairs: int | None = None) -> Iterator[str]:
    """Yields the sentences of some columns, with a thousand pairs in memory at a time."""
    for batch in islice(dataset.iter(batch_size=1000), None if pairs is None else -(-pairs // 1000)):
        for column in columns:
            yield from batch[column]
