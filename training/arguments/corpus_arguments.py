"""Recipe keys of the corpus: where the parallel text is, and which pairs are left out."""

import re
from dataclasses import dataclass, replace
from typing import ClassVar

from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.hub.languages import Directions, Languages


@dataclass
class CleaningArguments:
    """Which pairs are left out."""

    num_proc: int | None = key(None, "Processes for cleaning and tokenising; one by default.")

    drop_empty: bool = key(True, "Leave out training pairs with an empty side.")
    drop_identical: bool = key(False, "Leave out training pairs with identical sides.")
    drop_duplicates: bool = key(False, "Leave out repeated training pairs.")
    max_words: int | None = key(None, "Leave out training pairs with more words (by white space) on a side.")
    max_ratio: float | None = key(
        None, "Leave out training pairs if one side has more than this many times the words of the other."
    )

    def __post_init__(self) -> None:
        for name in ("max_words", "max_ratio", "num_proc"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1, or left out.")


@dataclass
class CorpusArguments(CleaningArguments):
    """Where the parallel text is, and which training pairs are left out.

    Give either `dataset` or `*_files`. To translate in the other direction, swap `source_lang` and `target_lang`.
    """

    help_group: ClassVar[str] = "text"

    source_lang: str | None = key(
        None, "Source language, as files and columns are named, for example en; by default that of the model."
    )
    target_lang: str | None = key(None, "Target language, for example de; by default that of the model.")
    directions: list[str] = key(
        [],
        "In place of the two languages, for a model with several directions: en-de de-en en-fr fr-en, for example. "
        "Files then have {source} and {target} in their names (data/train.{source}-{target}), or one prefix or table "
        "has all languages, or an entry names its pair (en-de=data/train). A bitext serves both of its directions.",
    )
    temperature: float = key(
        1.0,
        "With several directions: how much small ones are repeated. The share of a direction with n pairs is "
        "proportional to n^(1/temperature): 1 leaves the sizes as they are, 5 is usual, 100 makes them almost equal. "
        "The largest direction is used once, the others more often.",
    )

    dataset: str | None = key(
        None,
        "demo for the pairs that come with the package, a dataset of the Hub such as wmt/wmt14 or "
        "bentrevett/multi30k, or a local folder in the Hub's layout.",
    )
    dataset_config: str | None = key(
        None, "Configuration of that dataset, for example de-en. Not needed if its name is the language pair."
    )
    dataset_revision: str | None = key(
        None,
        "Branch, tag or commit of that dataset; refs/convert/parquet for one that was a script, which `datasets` no "
        "longer runs.",
    )
    train_split: str = key("train", "Split of the dataset to train on; slices such as train[:10000] work.")
    validation_split: str = key("validation", "Split of the dataset to validate on.")
    test_split: str = key("test", "Split of the dataset to test on.")

    train_files: list[str] = key(
        [],
        "Files to train on: a prefix such as data/train for data/train.en + data/train.de, the two files themselves, "
        "or .tsv, .csv, .jsonl and .parquet tables. Files may be gzipped (.gz), and * and ? match several.",
    )
    train_weights: list[float] = key(
        [],
        "How often each entry of train_files counts, for example 3 1: whole copies, and a random share of one more "
        "for a fraction. By default each counts once.",
    )
    validation_files: list[str] = key([], "Files to validate on, in the same formats.")
    test_files: list[str] = key([], "Files to test on, in the same formats.")
    test_sets: list[str] = key(
        [],
        "Further test sets, each NAME=FILES: news=data/news for data/news.en + data/news.de, for example; or by "
        "sacreBLEU's name: sacrebleu:wmt14/en-de, which is downloaded once.",
    )
    references: list[str] = key(
        [], "Further references, each NAME=FILE with a sentence on each line; NAME is test for --test_files."
    )
    columns: list[str] = key([], "Column names for .tsv and .csv files that have no header line, for example: en de.")

    streaming: bool = key(False, "Read the corpus while training instead of preparing it on disk first.")

    @property
    def languages(self) -> Languages:
        """The languages that are given."""
        return Languages(self.source_lang, self.target_lang)

    @property
    def all_directions(self) -> Directions:
        """The directions that are given, however many; none if the languages are not known."""
        if self.directions:
            return tuple(map(Languages.parse, self.directions))
        return (self.languages,) if self.languages else ()

    def with_languages(self, languages: tuple[str | None, str | None]) -> "CorpusArguments":
        """Returns the same arguments with other languages."""
        return replace(self, source_lang=languages[0], target_lang=languages[1], directions=[], temperature=1.0)

    def files(self, split: str) -> list[str]:
        """Returns the files of a split or of a further test set."""
        further = self.further_test_sets
        return further[split] if split in further else getattr(self, f"{split}_files")

    @property
    def further_test_sets(self) -> dict[str, list[str]]:
        """The files of each set in `test_sets`."""
        return files_by_name("test_sets", self.test_sets)

    @property
    def further_references(self) -> dict[str, list[str]]:
        """The files of further references for each test set."""
        return files_by_name("references", self.references)

    def __post_init__(self) -> None:
        for name in ("source_lang", "target_lang"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name}={getattr(self, name)!r} is not text: in YAML, put it in quotes.")
        for name in (
            "train_files",
            "validation_files",
            "test_files",
            "columns",
            "test_sets",
            "references",
            "directions",
        ):
            if isinstance(getattr(self, name), str):  # a recipe may give one file without brackets
                setattr(self, name, [getattr(self, name)])
        splits_in_files = [split for split in ("train", "validation", "test") if self.files(split)]
        if self.dataset and splits_in_files:
            raise ValueError(
                f"Both dataset={self.dataset!r} and {splits_in_files[0]}_files are given: leave out one of them. "
                "(Files on the command line replace the dataset of a recipe.)"
            )
        for name in self.further_test_sets:
            if name in ("train", "validation", "test") or not re.fullmatch(r"[\w.-]+", name):
                raise ValueError(f"test_sets has the name {name!r}: choose another, of letters and digits.")
        for name in self.further_references:
            if name != "test" and name not in self.further_test_sets:
                raise ValueError(f"references are given for {name!r}, which is not a test set: name one of test_sets.")
        if not self.dataset and not splits_in_files and not self.test_sets:
            raise ValueError(
                "No corpus is given: set dataset (demo, a name on the Hub or a folder) or train_files, "
                "validation_files and test_files."
            )
        if self.source_lang is not None and self.source_lang == self.target_lang:
            raise ValueError(f"source_lang and target_lang are both {self.source_lang!r}: give two languages.")
        self._require_directions()
        self._require_weights()
        super().__post_init__()

    def _require_directions(self) -> None:
        if not self.temperature >= 1:
            raise ValueError(f"temperature={self.temperature} must be at least 1; 1 leaves the sizes as they are.")
        if not self.directions:
            if self.temperature != 1:
                raise ValueError("temperature is for several directions: give directions, or leave it out.")
            return
        if len(set(self.all_directions)) < len(self.directions):
            raise ValueError(f"directions={' '.join(self.directions)} has one of them twice: leave it out.")
        if self.source_lang is not None or self.target_lang is not None:
            raise ValueError("Both directions and source_lang or target_lang are given: leave out one of them.")
        if len(self.directions) == 1:  # the special case: what follows need not know
            self.source_lang, self.target_lang = self.all_directions[0]
            self.directions, self.temperature = [], 1.0
            return
        if self.streaming:
            raise ValueError("Several directions need the corpus on disk: set streaming to false.")
        if self.references:
            raise ValueError("references are for one direction: leave them out, or give source_lang and target_lang.")

    def _require_weights(self) -> None:
        if not self.train_weights:
            return
        if len(self.train_weights) != len(self.train_files):
            raise ValueError(
                f"train_weights has {len(self.train_weights)} numbers, but train_files has {len(self.train_files)} "
                "entries: give one number for each entry."
            )
        if not 0 < min(self.train_weights) <= max(self.train_weights) <= 1000:
            raise ValueError(
                f"train_weights={self.train_weights} must be above 0 and at most 1,000: leave out files that do not "
                "count."
            )
        if self.streaming:
            raise ValueError("train_weights needs the corpus on disk: set streaming to false, or leave it out.")


def files_by_name(option: str, words: list[str]) -> dict[str, list[str]]:
    """Returns the files of each name in words of the form NAME=FILE."""
    named: dict[str, list[str]] = {}
    for word in words:
        name, equals, file = word.partition("=")
        if not equals and word.startswith("sacrebleu:"):  # wmt14.en_de
            name, equals, file = word.removeprefix("sacrebleu:").replace("/", ".").replace("-", "_"), "=", word
        if not (name and equals and file):
            raise ValueError(f"{option} has {word!r}: write NAME=FILE, for example news=data/news.")
        named.setdefault(name, []).append(file)
    return named
