"""The keys of a recipe, as dataclasses for `HfArgumentParser`. Nothing heavy is imported: `--help` must be quick."""

from dataclasses import dataclass, field


def key(default, help: str):
    """A field with its help text, which is also its comment in `--help`."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass
class CorpusArguments:
    """Where parallel text comes from, and what is left out of its training part.

    Either `dataset` or `*_files` is given. Direction is just `source_lang` and `target_lang`: swap them to translate
    the other way.
    """

    source_lang: str = key("en", "Language translated from, as the corpus names it, for example en.")
    target_lang: str = key("de", "Language translated to, as the corpus names it, for example de.")

    dataset: str | None = key(
        None,
        "demo for the built-in corpus, a dataset of the Hub such as wmt/wmt14 or bentrevett/multi30k, or a local "
        "folder in the Hub's layout.",
    )
    dataset_config: str | None = key(
        None, "Configuration of that dataset, for example de-en. Found by itself where its name is the language pair."
    )
    train_split: str = key("train", "Split of the dataset to train on; slices such as train[:10000] work.")
    validation_split: str = key("validation", "Split of the dataset to validate on.")
    test_split: str = key("test", "Split of the dataset to test on.")

    train_files: list[str] = key(
        [],
        "Files to train on: a prefix such as data/train for data/train.en + data/train.de, the two files themselves, "
        "or .tsv, .csv, .jsonl and .parquet tables; each may be gzipped (.gz) and named with * and ?.",
    )
    validation_files: list[str] = key([], "Files to validate on, in the same forms.")
    test_files: list[str] = key([], "Files to test on, in the same forms.")
    columns: list[str] = key(
        [], "Names of the columns of .tsv and .csv files that have no header line, for example: en de."
    )

    streaming: bool = key(False, "Read the corpus as it is needed instead of preparing it on disk first.")
    num_proc: int | None = key(None, "Processes for cleaning and tokenising; one by default.")

    drop_empty: bool = key(True, "Leave out training pairs with an empty side.")
    drop_identical: bool = key(False, "Leave out training pairs whose two sides are the same.")
    drop_duplicates: bool = key(False, "Leave out training pairs that came before.")
    max_words: int | None = key(None, "Leave out training pairs with more words (by white space) on a side.")
    max_ratio: float | None = key(
        None, "Leave out training pairs of which one side has more than this many times the other's words."
    )

    def files(self, split: str) -> list[str]:
        return getattr(self, f"{split}_files")

    def __post_init__(self):
        given = [split for split in ("train", "validation", "test") if self.files(split)]
        if self.dataset and given:
            raise ValueError(f"Both dataset={self.dataset!r} and {given[0]}_files are given: keep one of them.")
        if not self.dataset and not given:
            raise ValueError(
                "No corpus is given: set dataset (demo, a name of the Hub or a folder) or train_files, "
                "validation_files and test_files."
            )
        if self.source_lang == self.target_lang:
            raise ValueError(f"source_lang and target_lang are both {self.source_lang!r}: give two languages.")
        for name in ("max_words", "max_ratio", "num_proc"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1, or left out.")
