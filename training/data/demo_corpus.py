"""The demo corpus: short English-German sentence pairs of Tatoeba, which come with the package (`demo/README.md`)."""

from itertools import islice
from pathlib import Path

from vanilla_transformer.training.data.corpus_files import pairs_in_files


SIZES = {"train": 90_000, "validation": 1000, "test": 1000}  # pairs of each split
SOURCE = "tatoeba.org by way of manythings.org/anki, CC BY 2.0 FR"  # what a model's card must name


def demo_corpus(split: str, size: int | None = None) -> list[dict[str, str]]:
    """Returns the first pairs `{"en": ..., "de": ...}` of a split, by default all.

    Args:
        split: "train", "validation" or "test".
        size: Number of pairs.
    """
    file = Path(__file__).parent / "demo" / f"{split}.tsv.gz"
    return [{"en": en, "de": de} for en, de in islice(pairs_in_files([str(file)], "en", "de"), size)]
