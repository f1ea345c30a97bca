"""Cleaning of the training text: steps that drop useless pairs, and a report of how many each step dropped."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset

from vanilla_transformer.training.arguments.corpus_arguments import CleaningArguments
from vanilla_transformer.training.reports.tables import aligned


KEEP = "kept"
DUPLICATE = "duplicate"
TABLES = ("mixed", "directions", "languages")  # of the report, beside its numbers


@dataclass
class CleaningReport:
    """How many pairs each step dropped. For a stream, the numbers are those of the current or last pass.

    Args:
        loaded: Pairs before the first step.
        dropped: Pairs that each step dropped.
        mixed: Pairs of each file after cleaning and with its weight, if files have weights.
        directions: For each of several directions its pairs, how often they count, and the tokens of an epoch.
        languages: For each language of several directions, the tokens of a word.
    """

    loaded: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    mixed: dict[str, int] = field(default_factory=dict)
    directions: dict[str, dict[str, Any]] = field(default_factory=dict)
    languages: dict[str, dict[str, Any]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns all numbers by name."""
        tables = {name: getattr(self, name) for name in TABLES if getattr(self, name)}
        return {"loaded": self.loaded, **self.dropped, KEEP: self.kept, **tables}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any]) -> "CleaningReport":
        """Returns the report with the numbers of `as_dict`."""
        steps = {name: number for name, number in numbers.items() if name not in ("loaded", KEEP, *TABLES)}
        return cls(numbers["loaded"], steps, *(numbers.get(name, {}) for name in TABLES))

    @classmethod
    def sum_of(cls, reports: Mapping[str, "CleaningReport"]) -> "CleaningReport":
        """Returns one report for several directions, given by name."""
        total = cls()
        for direction, report in reports.items():
            total.loaded += report.loaded
            for step, number in report.dropped.items():
                total.dropped[step] = total.dropped.get(step, 0) + number
            total.mixed |= {f"{direction} {file}": number for file, number in report.mixed.items()}
        return total

    @property
    def kept(self) -> int:
        """Pairs that no step dropped."""
        return self.loaded - sum(self.dropped.values())

    def __str__(self) -> str:
        rows = [
            ("pairs loaded", self.loaded),
            *((f"- {step}", number) for step, number in self.dropped.items()),
            (KEEP, self.kept),
            *self.mixed.items(),
        ]
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {number:>12,}" for name, number in rows]
        return "\n".join([*lines, *_table(self.directions), *_table(self.languages)])


def _table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """Returns the lines of a table after an empty one, with the names of its columns first; none without rows."""
    if not rows:
        return []
    cells = [["", *next(iter(rows.values()))]]
    for name, row in rows.items():
        cells.append([name, *(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values())])
    return ["", aligned(cells, numbers_right=True)]


def steps(arguments: CleaningArguments) -> dict[str, Callable[[str, str], bool]]:
    """Returns the active steps that look at one pair at a time: their names and tests for what to drop, in order."""
    chosen: dict[str, Callable[[str, str], bool]] = {}
    if arguments.drop_empty:
        chosen["empty side"] = lambda source, target: not source.strip() or not target.strip()
    if arguments.max_words is not None:
        limit = arguments.max_words
        chosen[f"over {limit} words"] = lambda source, target: max(len(source.split()), len(target.split())) > limit
    if arguments.max_ratio is not None:
        ratio = arguments.max_ratio
        chosen[f"ratio over {ratio:g}"] = lambda source, target: _ratio(source, target) > ratio
    if arguments.drop_identical:
        chosen["identical sides"] = lambda source, target: source.strip() == target.strip()
    return chosen


def clean(
    dataset: Dataset | IterableDataset, arguments: CleaningArguments
) -> tuple[Dataset | IterableDataset, CleaningReport]:
    """Drops the pairs that an active step finds. Each is counted under the first step that finds it.

    Args:
        dataset: The columns `source` and `target`.
        arguments: Which steps are active.
    """
    report = CleaningReport(dropped=dict.fromkeys(_names(arguments), 0))
    if isinstance(dataset, IterableDataset):
        return _clean_stream(dataset, arguments, report), report
    return _clean_table(dataset, arguments, report), report


def _names(arguments: CleaningArguments) -> list[str]:
    """Returns the names of all active steps."""
    return [*steps(arguments), *([DUPLICATE] if arguments.drop_duplicates else [])]


def _clean_table(dataset: Dataset, arguments: CleaningArguments, report: CleaningReport) -> Dataset:
    report.loaded = len(dataset)
    if not report.dropped:
        return dataset
    judged = dataset.map(
        _judge,
        batched=True,
        fn_kwargs={"arguments": arguments},
        remove_columns=dataset.column_names,
        num_proc=arguments.num_proc,
        desc="Cleaning",
    )
    verdicts = judged.with_format("numpy")["verdict"][:]
    keep = verdicts == 0
    if arguments.drop_duplicates:
        kept = np.flatnonzero(keep)
        _, first = np.unique(judged.with_format("numpy")["fingerprint"][:][kept], return_index=True)
        keep[:] = False
        keep[kept[first]] = True
        report.dropped[DUPLICATE] = len(kept) - len(first)
    for number, name in enumerate(steps(arguments), start=1):
        report.dropped[name] = int((verdicts == number).sum())
    return dataset if keep.all() else dataset.select(np.flatnonzero(keep))


def _judge(batch: dict[str, list[str]], arguments: CleaningArguments) -> dict[str, list[int]]:
    """Returns for each pair the number of the step that drops it (0 for none) and a fingerprint for duplicates."""
    tests = list(steps(arguments).values())
    pairs = list(zip(batch["source"], batch["target"], strict=True))
    verdicts = [next((number for number, test in enumerate(tests, start=1) if test(*pair)), 0) for pair in pairs]
    return {"verdict": verdicts, "fingerprint": [_fingerprint(*pair) for pair in pairs]}


def _clean_stream(dataset: IterableDataset, arguments: CleaningArguments, report: CleaningReport) -> IterableDataset:
    """Cleans a stream. Each pass over it has its own set of seen pairs."""
    return IterableDataset.from_generator(
        kept_pairs,
        features=dataset.features,
        gen_kwargs={"pass_over": dataset, "arguments": arguments, "report": report},
    )


def kept_pairs(pass_over: Iterable[dict], arguments: CleaningArguments, report: CleaningReport) -> Iterator[dict]:
    """Yields the pairs that no step drops.

    Args:
        pass_over: Pairs with `source` and `target`.
        arguments: Which steps are active.
        report: Is filled in while the pairs are read.
    """
    tests = steps(arguments)
    seen: set[int] = set()
    report.loaded, report.dropped = 0, dict.fromkeys(_names(arguments), 0)
    for pair in pass_over:
        report.loaded += 1
        step = next((name for name, test in tests.items() if test(pair["source"], pair["target"])), None)
        if step is None and arguments.drop_duplicates:
            fingerprint = _fingerprint(pair["source"], pair["target"])
            step = DUPLICATE if fingerprint in seen else None
            seen.add(fingerprint)
        if step is None:
            yield pair
        else:
            report.dropped[step] += 1


def _ratio(source: str, target: str) -> float:
    shorter, longer = sorted((len(source.split()), len(target.split())))
    return longer / shorter if shorter else float("inf" if longer else 1)


def _fingerprint(source: str, target: str) -> int:
    """Returns eight bytes of a hash. Among a hundred million different pairs, the risk of a collision is 0.03%."""
    digest = blake2b(f"{source}\0{target}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
