"""Loading parallel text: one function for every kind of corpus.

A corpus comes from the Hub through `datasets`, from files, or with the package (`demo`). `load_corpus` returns it
with the columns `source` and `target`, and with `direction` if it has several.

```python
>>> from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
>>> from vanilla_transformer.training.data.parallel_corpus import load_corpus

>>> corpus = load_corpus(CorpusArguments(source_lang="en", target_lang="de", dataset="demo"))
>>> print(corpus.report)
pairs loaded        90,000
- empty side             0
kept                90,000
```"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from datasets import (
    ClassLabel,
    Dataset,
    IterableDataset,
    ReadInstruction,
    concatenate_datasets,
    get_dataset_config_names,
    load_dataset,
)
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

from vanilla_transformer.hub.languages import (
    Languages,
)
from vanilla_transformer.safe_files.input_files import lines_in_files
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.cleaning import CleaningReport, clean
from vanilla_transformer.training.data.corpus_files import (
    choose_columns,
    column_names,
    digests_of,
    pairs_in_files,
    state_of,
)
from vanilla_transformer.training.data.corpus_languages import directions_of_corpus, languages_of_corpus, of_direction
from vanilla_transformer.training.data.corpus_mixing import DIRECTION, TEXT, copies
from vanilla_transformer.training.data.demo_corpus import SIZES, demo_corpus
from vanilla_transformer.training.data.sacrebleu_sets import PREFIX, files_of_set
from vanilla_transformer.training.evaluation.metrics import Reference, require_same_number


Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
FILE = "file"  # column with the number of the file that a pair is from, for `train_weights`


@dataclass
class Corpus:
    """Parallel text by split, each with the columns `source` and `target`, and `direction` if there are several.

    Args:
        splits: The splits by name.
        report: What cleaning dropped from the training split; `None` without a training split.
    """

    splits: dict[str, Dataset | IterableDataset]
    report: CleaningReport | None = None

    def __getitem__(self, split: str) -> Dataset | IterableDataset:
        if split not in self.splits:
            raise KeyError(f"The corpus has no {split} split, only {', '.join(self.splits)}: give {split}_files.")
        return self.splits[split]

    def __contains__(self, split: str) -> bool:
        return split in self.splits


def load_corpus(arguments: CorpusArguments, splits: tuple[Split, ...] = SPLITS, *, seed: int = 0) -> Corpus:
    """Loads splits of a corpus, cleans the training split and repeats its files by their weights.

    The other splits stay as they are, because scores on a cleaned test set cannot be compared.

    Args:
        arguments: Where the text is, and its languages.
        splits: The splits to load. The first must exist; others that the corpus does not have are left out. With
            `test`, further test sets are loaded under their names.
        seed: Seed of the pairs that a fraction in `train_weights` draws.
    """
    directions = directions_of_corpus(arguments)  # before any work
    if len(directions) == 1:
        return _load_direction(of_direction(arguments, directions[0]), splits, seed=seed)
    return _joined(
        {
            direction: _load_direction(of_direction(arguments, direction), splits, seed=seed, several=True)
            for direction in directions
        }
    )


def _load_direction(
    arguments: CorpusArguments, splits: tuple[Split, ...], *, seed: int, several: bool = False
) -> Corpus:
    """Loads a corpus with one direction, or one direction of several."""
    loaded: dict[str, Dataset | IterableDataset]
    if arguments.dataset == "demo":
        loaded = {split: _load_demo(arguments, split, several) for split in splits}
    elif arguments.dataset:
        loaded = _load_from_hub(arguments, splits, several)
    else:
        loaded = {split: _load_files(arguments, split, several) for split in splits if arguments.files(split)}
    if "test" in splits:
        loaded |= {name: _load_files(arguments, name, several) for name in arguments.further_test_sets}
    if splits[0] not in loaded and not (splits == ("test",) and loaded):
        where = f" for {arguments.languages}" if several else ""
        raise ValueError(f"The corpus has no {splits[0]} split{where}: set {splits[0]}_files.")
    for split, dataset in loaded.items():
        if isinstance(dataset, Dataset) and not len(dataset):
            raise _empty(arguments, split)
    if "train" not in loaded:
        return Corpus(loaded)
    loaded["train"], report = clean(loaded["train"], arguments)
    if isinstance(loaded["train"], Dataset) and not report.kept:
        raise ValueError(f"Cleaning left no pair of the training split: relax the steps below.\n{report}")
    if arguments.train_weights:
        loaded["train"] = _weighted(loaded["train"], arguments, report, seed)
    return Corpus(loaded, report)


def _joined(corpora: Mapping[Languages, Corpus]) -> Corpus:
    """Puts the corpora of several directions together, with the direction of each pair in a column."""
    label = ClassLabel(names=list(map(str, corpora)))
    splits: dict[str, Dataset | IterableDataset] = {}
    for split in dict.fromkeys(name for corpus in corpora.values() for name in corpus.splits):
        parts = []
        for number, corpus in enumerate(corpora.values()):
            if split in corpus:
                part = corpus[split]
                assert isinstance(part, Dataset)  # several directions are never streamed
                parts.append(part.add_column(DIRECTION, np.full(len(part), number), feature=label))
        splits[split] = concatenate_datasets(parts)
    reports = {str(direction): corpus.report for direction, corpus in corpora.items() if corpus.report is not None}
    return Corpus(splits, CleaningReport.sum_of(reports) if reports else None)


def references_of(arguments: CorpusArguments, name: str, targets: Sequence[str]) -> list[Reference]:
    """Returns the references of a test set: its target side, those in further files, and all of sacreBLEU's.

    Args:
        arguments: Where the references are.
        name: The test set.
        targets: Its target side.
    """
    columns = [list(targets)]
    further = list(arguments.further_references.get(name, []))
    for file in arguments.files(name):
        if file.startswith(PREFIX):
            further += map(str, files_of_set(file, *languages_of_corpus(arguments))[2:])
    for file in further:
        columns.append(list(lines_in_files([file])))
        require_same_number(columns[-1], targets, f"lines in {file}")
    return list(targets) if len(columns) == 1 else [list(several) for several in zip(*columns, strict=True)]


def content_digests(arguments: CorpusArguments, corpus: Corpus) -> dict[str, dict[str, str]]:
    """Returns for each split the SHA-256 of its files, or of its text if it comes from a dataset.

    A dataset that is streamed is left out: it would have to be read to the end.
    """
    if not arguments.dataset:
        digests: dict[str, dict[str, str]] = {}
        for direction in directions_of_corpus(arguments):
            for split in SPLITS:
                if files := of_direction(arguments, direction).files(split):
                    digests[split] = digests.get(split, {}) | digests_of(files, *map(str, direction))
        return digests
    return {
        split: {f"the {split} split of {arguments.dataset}": _digest(text)}
        for split, text in corpus.splits.items()
        if isinstance(text, Dataset)
    }


def _digest(text: Dataset) -> str:
    digest = hashlib.sha256()
    for batch in text.iter(batch_size=1000):
        for side in ("source", "target"):
            digest.update("\n".join(line.replace("\n", "\n ") for line in batch[side]).encode())
            digest.update(b"\n\n")  # the end of a side
    return digest.hexdigest()


# --- the demo corpus ---


def _load_demo(arguments: CorpusArguments, split: Split, several: bool) -> Dataset | IterableDataset:
    parts = ReadInstruction.from_spec(getattr(arguments, f"{split}_split")).to_absolute(SIZES)
    pairs = [pair for part in parts for pair in demo_corpus(part.splitname, part.to)[part.from_ :]]
    if not pairs:
        raise _empty(arguments, split)
    source, target = choose_columns(
        pairs[0], column_names(*languages_of_corpus(arguments), several), "The demo corpus"
    )
    columns = {"source": [pair[source] for pair in pairs], "target": [pair[target] for pair in pairs]}
    dataset = Dataset.from_dict(columns, features=TEXT)
    return dataset.to_iterable_dataset() if arguments.streaming else dataset


# --- files ---


def _load_files(arguments: CorpusArguments, split: str, several: bool) -> Dataset | IterableDataset:
    if split != "train" or not arguments.train_weights:
        return _load_together(arguments, split, arguments.files(split), several)
    parts = [_load_together(arguments, split, [file], several) for file in arguments.train_files]
    return concatenate_datasets(
        [part.add_column(FILE, np.full(len(part), number)) for number, part in enumerate(parts)]
    )


def _weighted(dataset: Dataset, arguments: CorpusArguments, report: CleaningReport, seed: int) -> Dataset:
    """Repeats the pairs of each file by its weight, and reports how many there are then."""
    file_of_pair = dataset.with_format("numpy")[FILE][:]
    chosen = []
    for number, (file, weight) in enumerate(zip(arguments.train_files, arguments.train_weights, strict=True)):
        pairs = np.flatnonzero(file_of_pair == number)
        chosen.append(pairs[copies(len(pairs), weight, seed + number)])
        report.mixed[f"{file} x {weight:g}"] = len(chosen[-1])
    if not any(map(len, chosen)):
        raise ValueError(f"train_weights={arguments.train_weights} leave no training pair: give higher ones.")
    return dataset.select(np.concatenate(chosen)).remove_columns(FILE)


def _load_together(
    arguments: CorpusArguments, split: str, files: list[str], several: bool
) -> Dataset | IterableDataset:
    # Tuples, because `datasets` would split the work over the elements of a list.
    where: dict[str, Any] = {
        "files": tuple(files),
        "languages": languages_of_corpus(arguments),
        "columns": tuple(arguments.columns),
        "several": several,
    }
    if next(_generate(**where), None) is None:  # this also reports a missing file before any work is done
        raise _empty(arguments, split)
    if arguments.streaming:
        return IterableDataset.from_generator(_generate, features=TEXT, gen_kwargs=where)
    # `datasets` caches the result under the generator's arguments: `state` makes a changed file a new argument.
    state = state_of(where["files"], *where["languages"])
    try:
        return Dataset.from_generator(_generate, features=TEXT, gen_kwargs={**where, "state": state}, split=split)
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, ValueError):
            raise error.__cause__ from None
        raise


def _generate(
    files: tuple[str, ...],
    languages: tuple[str, str],
    columns: tuple[str, ...],
    several: bool = False,
    state: tuple = (),
) -> Iterator[dict[str, str]]:
    for source, target in pairs_in_files(files, *languages, columns, several=several):
        yield {"source": source, "target": target}


# --- the Hub ---


def _load_from_hub(
    arguments: CorpusArguments, splits: tuple[Split, ...], several: bool
) -> dict[str, Dataset | IterableDataset]:
    try:
        config = arguments.dataset_config or _choose_config(arguments)
        loaded = load_dataset(
            arguments.dataset, config, revision=arguments.dataset_revision, streaming=arguments.streaming
        )
    except RuntimeError as error:
        if "script" not in str(error):
            raise
        raise ValueError(
            f"The dataset {arguments.dataset!r} is a script, which `datasets` no longer runs: set dataset_revision to "
            "refs/convert/parquet, where the Hub keeps most of them as Parquet files."
        ) from error
    except (DatasetNotFoundError, ConnectionError, FileNotFoundError) as error:
        raise ValueError(
            f"The dataset {arguments.dataset!r} can't be loaded: it is not a local folder with Parquet files, and "
            f"either not on the Hub, or the Hub can't be reached, or a login is needed. ({error})"
        ) from error
    chosen: dict[str, Dataset | IterableDataset] = {}
    for split in splits:
        name = getattr(arguments, f"{split}_split")
        if all(part.split("[")[0] in loaded for part in name.split("+")):
            dataset = loaded[name] if name in loaded else _slice(arguments, config, name)
            chosen[split] = _to_pairs(dataset, arguments, several)
        elif split == splits[0] or name != getattr(CorpusArguments, f"{split}_split"):
            raise ValueError(
                f"{split}_split={name!r} is not among the splits of {arguments.dataset!r}: {', '.join(loaded)}."
            )
    return chosen


def _slice(arguments: CorpusArguments, config: str | None, name: str) -> Dataset:
    if arguments.streaming:
        raise ValueError(
            f"A stream can't be sliced or joined: name one split in place of {name!r}, or set streaming to false."
        )
    return load_dataset(arguments.dataset, config, split=name, revision=arguments.dataset_revision)


def _choose_config(arguments: CorpusArguments) -> str | None:
    names = get_dataset_config_names(arguments.dataset, revision=arguments.dataset_revision)
    source_lang, target_lang = languages_of_corpus(arguments)
    pair = [f"{source_lang}-{target_lang}", f"{target_lang}-{source_lang}"]
    for name in names:
        if any(name.endswith(languages) for languages in pair):
            return name
    if len(names) == 1:
        return names[0]
    raise ValueError(
        f"{arguments.dataset!r} has the configurations {', '.join(names)}, none of them named after {pair[0]}: set "
        "dataset_config."
    )


def _to_pairs(
    dataset: Dataset | IterableDataset, arguments: CorpusArguments, several: bool
) -> Dataset | IterableDataset:
    """Converts the Hub's layouts, `{"translation": {"en": ..., "de": ...}}` and flat, to `source` and `target`."""
    names = dataset.column_names or list(next(iter(dataset)))
    nested = "translation" in names
    if nested:
        feature = (dataset.features or {}).get("translation")
        names = getattr(feature, "languages", None) or list(feature or next(iter(dataset))["translation"])
    columns = choose_columns(
        names, column_names(*languages_of_corpus(arguments), several), f"The dataset {arguments.dataset!r}"
    )
    options = {} if isinstance(dataset, IterableDataset) else {"desc": "Reading", "num_proc": arguments.num_proc}
    return dataset.map(
        _pick,
        batched=True,
        fn_kwargs={"columns": columns, "nested": nested},
        remove_columns=dataset.column_names,
        features=TEXT,
        **options,
    )


def _pick(batch: dict[str, list], columns: tuple[str, str], nested: bool) -> dict[str, list[str]]:
    sides = []
    for name in columns:
        side = [row[name] for row in batch["translation"]] if nested else batch[name]
        sides.append([text or "" for text in side])
    return {"source": sides[0], "target": sides[1]}


def _empty(arguments: CorpusArguments, split: str) -> ValueError:
    origin = repr(arguments.dataset) if arguments.dataset else ", ".join(arguments.files(split))
    return ValueError(f"The {split} split is empty: {origin} has no pair of sentences. Check the path.")
