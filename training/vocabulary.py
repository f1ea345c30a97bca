"""Learning vocabularies from a corpus: one for both languages, or one for each."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from datasets import Dataset, IterableDataset

from vanilla_transformer.tokenization_vanilla_transformer import TARGET, train_tokenizer
from vanilla_transformer.training.arguments import VocabularyArguments


def learn_vocabularies(text: Dataset | IterableDataset, options: VocabularyArguments, folder: str | Path) -> list[int]:
    """Learns from the columns `source` and `target`, saves below `folder` and returns the sizes.

    Separate vocabularies are the source's in the folder itself and the target's in its subfolder `target`.
    """
    folder = Path(folder)
    if not options.separate:
        return [_learn(sentences(text, ["source", "target"], options.vocabulary_pairs), options, folder)]
    sides = [("source", folder), ("target", folder / TARGET)]
    return [_learn(sentences(text, [side], options.vocabulary_pairs), options, place) for side, place in sides]


def _learn(texts: Iterator[str], options: VocabularyArguments, folder: Path) -> int:
    tokenizer = train_tokenizer(
        texts,
        vocab_size=options.vocab_size,
        algorithm=options.algorithm,
        normalization=options.normalization,
        lowercase=options.lowercase,
        min_frequency=options.min_frequency,
    )
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def sentences(dataset: Dataset | IterableDataset, columns: list[str], pairs: int | None = None) -> Iterator[str]:
    """The sentences of some columns, a thousand pairs in memory at a time."""
    for batch in islice(dataset.iter(batch_size=1000), None if pairs is None else -(-pairs // 1000)):
        for column in columns:
            yield from batch[column]
