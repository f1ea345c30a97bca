"""The demo corpus: complete, small, and without a test sentence in the training text."""

from pathlib import Path

import pytest

from vanilla_transformer.training.data import demo_corpus as module
from vanilla_transformer.training.data.demo_corpus import SIZES, demo_corpus


@pytest.fixture(scope="module")
def splits():
    return {split: demo_corpus(split) for split in SIZES}


def bare(text):
    """A sentence without case, punctuation and white space."""
    return "".join(filter(str.isalnum, text)).casefold()


def test_every_pair_has_two_sides(splits):
    for split, size in SIZES.items():
        assert len(splits[split]) == size
        for pair in splits[split]:
            assert bare(pair["en"])
            assert bare(pair["de"])
            assert not {"\t", "\n", "\r"} & set(pair["en"] + pair["de"])


def test_training_pairs_are_short_and_have_different_sources(splits):
    assert max(len(text.split()) for pair in splits["train"] for text in pair.values()) == 10
    assert len({pair["en"] for pair in splits["train"]}) == SIZES["train"]


def test_no_sentence_of_the_other_splits_is_in_the_training_text(splits):
    training = {bare(text) for pair in splits["train"] for text in pair.values()}
    for split in ("validation", "test"):
        assert not training & {bare(text) for pair in splits[split] for text in pair.values()}


def test_a_size_gives_the_first_pairs(splits):
    assert demo_corpus("train", 5) == splits["train"][:5]


def test_the_files_are_small_and_name_their_source():
    folder = Path(module.__file__).parent / "demo"
    assert sum(path.stat().st_size for path in folder.glob("*.tsv.gz")) <= 2_500_000
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert all(name in readme for name in ("tatoeba.org", "manythings.org/anki", "CC BY 2.0 FR"))
