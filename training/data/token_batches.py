"""Token batches: pairs of similar lengths, at most N source and N target tokens per batch (section 5.1 of the paper).

The size of a batch is its padded size, because that decides memory and time: pairs times the longest source, and pairs
times the longest target. A length counts every token the model reads, end of sentence included.

How batches are made:

1. *Cells.* Pairs with the same source and target length are interchangeable. A corpus is a table of cells with counts.
2. *Snake order.* Cells are sorted by their longer side, which decides how many pairs fit. Cells with the same longer
   side are sorted by the difference of the two sides, alternately ascending and descending. So neighbours are close in
   both lengths.
3. *Cut.* The ordered pairs are cut into batches, each as large as the limits allow.
4. *Shuffle.* Every epoch shuffles the pairs inside each cell, and the order of the batches. The shapes of the batches
   never change, and neither does their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from torch.utils.data import DataLoader, IterableDataset, Sampler, get_worker_info
from transformers.utils import logging


logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class Limits:
    """The maximum size of a batch.

    Args:
        source: Maximum source tokens, padding included.
        target: Maximum target tokens, padding included.
        pairs: Maximum pairs; `None` for no such limit.
    """

    source: int
    target: int
    pairs: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("source tokens", self.source), ("target tokens", self.target), ("pairs", self.pairs)):
            if value is not None and value < 1:
                raise ValueError(f"A batch of at most {value} {name} holds nothing; give a limit of 1 or more.")

    @classmethod
    def of(
        cls, max_tokens: int, max_source_tokens: int | None, max_target_tokens: int | None, max_pairs: int | None
    ) -> Limits:
        """Returns the limits from the users' options: one number for both sides, unless a side has its own."""
        source = max_tokens if max_source_tokens is None else max_source_tokens
        target = max_tokens if max_target_tokens is None else max_target_tokens
        return cls(source, target, max_pairs)

    def rows(self, longest_source: int, longest_target: int) -> int:
        """Returns how many pairs fit in a batch padded to these two lengths."""
        rows = min(self.source // longest_source, self.target // longest_target)
        return rows if self.pairs is None else min(rows, self.pairs)


def cut(
    source_lengths: np.ndarray, target_lengths: np.ndarray, limits: Limits, counts: np.ndarray | None = None
) -> np.ndarray:
    """Cuts ordered pairs into consecutive batches, each as large as the limits allow.

    The caller chooses the order, so orders can be compared: `cut(source[order], target[order], limits)`.

    Args:
        source_lengths: Source lengths in order; none above `limits.source`.
        target_lengths: Target lengths in order; none above `limits.target`.
        limits: The maximum size of a batch.
        counts: How often each entry is repeated, for runs of equal pairs; once by default.

    Returns:
        The number of pairs in each batch.
    """
    counts = np.ones(len(source_lengths), dtype=np.int64) if counts is None else counts
    sizes, rows, longest_source, longest_target = [], 0, 0, 0
    for source, target, count in zip(source_lengths.tolist(), target_lengths.tolist(), counts.tolist(), strict=True):
        wider_source, wider_target = max(longest_source, source), max(longest_target, target)
        taken = min(count, max(0, limits.rows(wider_source, wider_target) - rows))
        if taken == count:
            rows, longest_source, longest_target = rows + count, wider_source, wider_target
            continue
        # The batch is full. The rest of the run fills batches of its own, and its last pairs start the next batch.
        if rows + taken:
            sizes.append(rows + taken)
        most = limits.rows(source, target)
        full, rows = divmod(count - taken, most)
        sizes.extend([most] * full)
        longest_source, longest_target = (source, target) if rows else (0, 0)
    return np.array([*sizes, rows] if rows else sizes, dtype=np.int64)


def _split_to_multiple(sizes: np.ndarray, multiple: int) -> np.ndarray:
    """Halves the largest batches until their number is a multiple. No pair is lost or repeated."""
    while len(sizes) % multiple:
        largest = int(sizes.argmax())
        if sizes[largest] == 1:
            raise ValueError(
                f"{sizes.sum()} pairs cannot be divided into a multiple of {multiple} batches under these limits; use "
                "fewer processes or a larger corpus."
            )
        half = int(sizes[largest]) // 2
        sizes = np.insert(sizes, largest, half)
        sizes[largest + 1] -= half
    return sizes


def _snake(source_lengths: np.ndarray, target_lengths: np.ndarray, limits: Limits) -> np.ndarray:
    """Returns the order in which neighbouring cells are close in both lengths: by the longer side, back and forth."""
    # With unequal limits, "longer" means the larger share of its limit; products keep the numbers whole.
    source: np.ndarray = source_lengths * limits.target
    target: np.ndarray = target_lengths * limits.source
    _, strip = np.unique(np.maximum(source, target), return_inverse=True)
    return np.lexsort((np.where(strip % 2, target - source, source - target), strip))


@dataclass(frozen=True)
class Padding:
    """The share of padding in a set of batches, as fractions of all positions.

    Args:
        batches: Number of batches.
        pairs: Number of pairs.
        source: Share of padding on the source side.
        target: Share of padding on the target side.
        both: Share of padding on both sides together.
    """

    batches: int
    pairs: int
    source: float
    target: float
    both: float

    @classmethod
    def measure(cls, source_lengths: np.ndarray, target_lengths: np.ndarray, sizes: np.ndarray) -> Padding:
        """Measures the padding of consecutive batches of the given sizes."""
        starts = np.cumsum(sizes) - sizes
        tokens = np.array([lengths.sum(dtype=np.int64) for lengths in (source_lengths, target_lengths)])
        positions = np.array(
            [(np.maximum.reduceat(lengths, starts) * sizes).sum() for lengths in (source_lengths, target_lengths)]
        )
        padded = positions - tokens
        source, target = padded / positions
        return cls(len(sizes), len(source_lengths), float(source), float(target), padded.sum() / positions.sum())

    def __str__(self) -> str:
        return f"{self.batches:,} batches, {self.pairs / self.batches:.1f} pairs each, {self.both:.1%} padding"


class TokenBatchSampler(Sampler[list[int]]):
    """Batches of pairs with similar lengths, shuffled in each epoch by seed and epoch, the same on every machine.

    Give it to a `DataLoader` as `batch_sampler`. It is the same in every process: Accelerate and `Trainer` give batch
    i to process i modulo the number of processes. If that number does not divide the number of batches, Accelerate
    repeats some; `batches_multiple_of` prevents that. The order of batches does not depend on their lengths, so an
    update over several processes mixes long and short pairs. The processes have similar work, because every batch is
    nearly full. The sampler has no `batch_size`: Accelerate's `split_batches` refuses it, and `dispatch_batches` (off
    by default here) cannot join batches of different widths.

    To resume with Accelerate, call the loader's `set_epoch` before `skip_first_batches`. `Trainer` calls it later, and
    with several processes the call has no effect: set the sampler's epoch in a callback's `on_epoch_begin`.

    Pairs of a rare length have few others to change places with, so they are often in the same batch.

    Args:
        source_lengths: Number of source tokens of each pair, end of sentence included (see `column_lengths`).
        target_lengths: Number of target tokens of each pair, end of sentence included.
        max_tokens: Maximum tokens of a batch on either side, padding included. The paper has 25,000 and 25,000.
        max_source_tokens: Limit of the source side alone; `max_tokens` by default.
        max_target_tokens: Limit of the target side alone; `max_tokens` by default.
        max_pairs: Maximum pairs of a batch; no limit by default.
        batches_multiple_of: The number of batches is a multiple of this; give the number of processes, or that times
            the gradient accumulation steps. The largest batches are halved to reach it.
        seed: Seed of the shuffling.
        over_limit: What to do with single pairs that exceed a limit: `"skip"` leaves them out with a warning and lists
            them in `skipped`, `"error"` raises.

    Attributes:
        skipped: Indices of the pairs that exceed a limit and are left out.
        epoch: The epoch of the next iteration.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | np.ndarray,
        target_lengths: Sequence[int] | np.ndarray,
        *,
        max_tokens: int = 25_000,
        max_source_tokens: int | None = None,
        max_target_tokens: int | None = None,
        max_pairs: int | None = None,
        batches_multiple_of: int = 1,
        seed: int = 0,
        over_limit: Literal["skip", "error"] = "skip",
    ):
        _check_options(batches_multiple_of, over_limit)
        self.limits = Limits.of(max_tokens, max_source_tokens, max_target_tokens, max_pairs)
        self.seed, self.epoch = seed, 0
        self._start = self._position = 0
        source, target = _length_array(source_lengths, "source"), _length_array(target_lengths, "target")
        if len(source) != len(target):
            raise ValueError(f"Got {len(source)} source but {len(target)} target lengths; every pair needs both.")

        fits = (source <= self.limits.source) & (target <= self.limits.target)
        self.skipped = np.flatnonzero(~fits)
        if len(self.skipped):
            _report_over_limit(source[~fits], target[~fits], self.limits, over_limit)
            source, target = source[fits], target[fits]
        if not len(source):
            raise ValueError("No pair is left to batch; give a corpus that is not empty and a limit that fits it.")
        self._kept = np.flatnonzero(fits) if len(self.skipped) else None
        self._lay_out(source, target)
        self._sizes = _split_to_multiple(
            cut(self._cell_source, self._cell_target, self.limits, self._cell_counts), batches_multiple_of
        )

    def _lay_out(self, source: np.ndarray, target: np.ndarray) -> None:
        """Counts the cells, sorts them in snake order, and stores for each pair the rank of its cell in that order."""
        width = int(target.max()) + 1
        cells, cell_of_pair, counts = np.unique(source * width + target, return_inverse=True, return_counts=True)
        order = _snake(cells // width, cells % width, self.limits)
        self._cell_source, self._cell_target = cells[order] // width, cells[order] % width
        self._cell_counts = counts[order]
        # The narrowest type: 16 bits are enough for most corpora and sort several times faster than 32.
        place = np.empty(len(cells), dtype=np.min_scalar_type(len(cells)))
        place[order] = np.arange(len(cells))
        self._place = place[cell_of_pair]

    def __len__(self) -> int:
        """Returns the number of batches in an epoch, the same in every epoch, also after a resume."""
        return len(self._sizes)

    def __iter__(self) -> Iterator[list[int]]:
        start, self._start = self._start, 0
        pairs, order = self._shuffle()
        ends = np.cumsum(self._sizes)
        begins = ends - self._sizes
        for position in range(start, len(self)):
            batch = order[position]
            self._position = position + 1
            yield pairs[begins[batch] : ends[batch]].tolist()

    def _shuffle(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns this epoch's order of pairs, shuffled inside each cell, and this epoch's order of batches."""
        rng = np.random.Generator(np.random.PCG64([self.seed, self.epoch]))
        pairs = rng.permutation(len(self._place))
        # A stable sort gives the same order of ties on every processor.
        pairs = pairs[np.argsort(self._place[pairs], kind="stable")]
        return pairs if self._kept is None else self._kept[pairs], rng.permutation(len(self))

    @property
    def sampler(self) -> TokenBatchSampler:
        """The sampler itself: with several processes, Accelerate looks for `set_epoch` only under this name."""
        return self

    def set_epoch(self, epoch: int, start_batch: int | None = None) -> None:
        """Sets the epoch of the next iteration and, for a resumed run, its first batch.

        Args:
            epoch: The epoch, from 0.
            start_batch: How many batches to skip, counted over all processes. By default none, but a position that
                `load_state_dict` set for the same epoch is kept.
        """
        if start_batch is not None or epoch != self.epoch:
            self._start = self._position = start_batch or 0
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """Returns the position of the next batch.

        A loader with workers prefetches, and Accelerate's loader always does, so the sampler is ahead of the training.
        There, count the batches and pass their number as `start_batch` or to `skip_first_batches`.
        """
        if self._position == len(self):
            return {"epoch": self.epoch + 1, "batch": 0}
        return {"epoch": self.epoch, "batch": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues from a position of `state_dict`; lengths, limits and seed must be the same as then."""
        self.set_epoch(state["epoch"], start_batch=state["batch"])

    def tokens(self) -> tuple[int, int]:
        """Returns the source tokens and the target tokens of an epoch."""
        return int(self._cell_source @ self._cell_counts), int(self._cell_target @ self._cell_counts)

    def padding(self) -> Padding:
        """Returns the padding of an epoch, which is the same for every epoch."""
        source: np.ndarray = np.repeat(self._cell_source, self._cell_counts)
        target: np.ndarray = np.repeat(self._cell_target, self._cell_counts)
        return Padding.measure(source, target, self._sizes)


def _check_options(batches_multiple_of: int, over_limit: str) -> None:
    if batches_multiple_of < 1:
        raise ValueError(f"batches_multiple_of is {batches_multiple_of}; give the number of processes, 1 or more.")
    if over_limit not in ("skip", "error"):
        raise ValueError(f"over_limit is {over_limit!r}; give 'skip' or 'error'.")


def _length_array(lengths: Sequence[int] | np.ndarray, side: str) -> np.ndarray:
    """Returns lengths as an array of whole numbers, after checks."""
    array: np.ndarray = np.asarray(lengths[:])  # the slice reads a column of `datasets` at once, not item by item
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(
            f"The {side} lengths are an array of {array.dtype} with {array.ndim} dimensions; give one whole "
            "number per pair, for instance from column_lengths()."
        )
    if array.size and array.min() < 1:
        raise ValueError(
            f"Pair {array.argmin()} has a {side} length of {array.min()}; every side ends in an end-of-sentence "
            "token, so that the shortest length is 1. Tokenise with special tokens, or filter empty lines."
        )
    return array.astype(np.int64)


def _report_over_limit(source: np.ndarray, target: np.ndarray, limits: Limits, over_limit: str) -> None:
    """Reports how many single pairs exceed a limit: by a warning, or by a ValueError if `over_limit` is "error"."""
    message = (
        f"{len(source)} pair(s) exceed the batch limit of {limits.source} source and {limits.target} target tokens by "
        f"themselves (the longest: {source.max()} source, {target.max()} target tokens). Raise the limit, or truncate "
        "or filter these pairs."
    )
    if over_limit == "error":
        raise ValueError(message)
    logger.warning(f"{message} They are left out of every epoch.")


def column_lengths(dataset: Dataset, column: str) -> np.ndarray:
    """Returns the lengths of the lists in a column, from Arrow's offsets, without reading the lists.

    Args:
        dataset: A dataset from the `datasets` library; selections and shuffles are respected.
        column: A column of lists, such as `input_ids` or `labels`.
    """
    if column not in dataset.column_names:
        raise ValueError(f"The dataset has no column {column!r} but {dataset.column_names}; tokenise it first.")
    try:
        lengths = pc.list_value_length(dataset.data.column(column))
    except pa.ArrowNotImplementedError as error:
        kind = dataset.features[column]
        raise ValueError(f"Column {column!r} holds {kind}, not lists of tokens; tokenise it first.") from error
    lengths = lengths.fill_null(0).to_numpy().astype(np.int32)
    # After a selection or shuffle, the table is the same and the chosen rows are in `_indices`.
    return lengths if dataset._indices is None else lengths[dataset._indices.column(0).to_numpy()]


class WindowedTokenBatches(IterableDataset):
    """Token batches of a stream: reads a window of pairs, makes batches of it, shuffles them, and repeats.

    Yields lists of examples. The stream is any iterable of examples that restarts on each `iter`, such as a
    `datasets.IterableDataset`; its `set_epoch` is called too. A last window that is less than half full is joined to
    the one before. There is no `__len__`, because a stream does not know its end: `Trainer` needs `max_steps`. A
    resumed run reads from the start and skips the first batches, which gives the same batches.

    With several processes, each reads the whole stream and takes every n-th batch. Set `batches_multiple_of` to their
    number, set `dispatch_batches=False` (`DataLoaderConfiguration`, or `accelerator_config` of the training arguments)
    and prepare the loader of `dataloader()`. Each window then has a multiple of that many batches, so every process
    gets the same number and every pair is seen once. Accelerate's default, dispatching, fails: it joins batches of
    different widths.

    Args:
        stream: Iterable of examples with two columns of token ids.
        window: Pairs in memory that are batched together. More pairs give less padding and a better shuffle.
        source_column: Name of the source ids.
        target_column: Name of the target ids.
        seed: Seed of the shuffling.
        over_limit: As for `TokenBatchSampler`; here `skipped` is the number of pairs left out so far in this epoch.
        max_tokens, max_source_tokens, max_target_tokens, max_pairs, batches_multiple_of: As for `TokenBatchSampler`.
    """

    def __init__(
        self,
        stream: Iterable[dict[str, Any]],
        *,
        window: int = 100_000,
        source_column: str = "input_ids",
        target_column: str = "labels",
        max_tokens: int = 25_000,
        max_source_tokens: int | None = None,
        max_target_tokens: int | None = None,
        max_pairs: int | None = None,
        batches_multiple_of: int = 1,
        seed: int = 0,
        over_limit: Literal["skip", "error"] = "skip",
    ):
        _check_options(batches_multiple_of, over_limit)
        if window < 2 * batches_multiple_of:
            raise ValueError(
                f"A window of {window} pairs is too small for a multiple of {batches_multiple_of} batches; "
                f"give at least {2 * batches_multiple_of}, better a hundred thousand."
            )
        self.stream, self.window = stream, window
        self.columns = (source_column, target_column)
        self.limits = Limits.of(max_tokens, max_source_tokens, max_target_tokens, max_pairs)
        self.batches_multiple_of, self.seed, self.over_limit = batches_multiple_of, seed, over_limit
        self.epoch = self.skipped = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, also for the shuffling of the stream."""
        self.epoch = epoch
        if hasattr(self.stream, "set_epoch"):
            self.stream.set_epoch(epoch)

    def dataloader(self, collate_fn: Callable[[list[dict]], Any], **options: Any) -> DataLoader:
        """Returns a loader of collated batches that works with Accelerate and several processes.

        For one process, `DataLoader(batches, batch_size=None, collate_fn=...)` is enough. Accelerate counts batches by
        the loader's `batch_size`, so this loader has batches of one element, which is a complete token batch.
        """
        return DataLoader(self, batch_size=1, collate_fn=partial(_collate_only_element, collate_fn), **options)

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        worker = get_worker_info()
        if worker is not None and worker.num_workers > 1:
            raise ValueError(
                f"Each of the {worker.num_workers} loader workers would read the whole stream; set num_workers to 0 "
                "or 1."
            )
        pairs = self._within_limits()
        for number, window in enumerate(self._windows(pairs)):
            yield from self._batches(window, number)

    def _within_limits(self) -> Iterator[dict[str, Any]]:
        """Yields the pairs of the stream within the limits; reports the first other pair, and how many there are."""
        self.skipped = 0
        for example in self.stream:
            source, target = (len(example[column]) for column in self.columns)
            if source <= self.limits.source and target <= self.limits.target:
                yield example
                continue
            if not self.skipped:
                _report_over_limit(np.array([source]), np.array([target]), self.limits, self.over_limit)
            self.skipped += 1
        if self.skipped > 1:
            logger.warning(f"{self.skipped} pairs of the stream exceeded the batch limit and were left out.")

    def _windows(self, pairs: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """Yields windows of pairs. The last is never less than half full, unless it is the only one."""
        least = self.window // 2
        window = list(islice(pairs, self.window))
        while window:
            ahead = list(islice(pairs, least))
            if len(ahead) < least:
                window, ahead = window + ahead, []
            yield window
            window = ahead + list(islice(pairs, self.window - least)) if ahead else []

    def _batches(self, window: list[dict[str, Any]], number: int) -> Iterator[list[dict[str, Any]]]:
        """Yields the batches of one window, shuffled by its number, the seed and the epoch."""
        source, target = ([len(example[column]) for example in window] for column in self.columns)
        sampler = TokenBatchSampler(
            source,
            target,
            max_source_tokens=self.limits.source,
            max_target_tokens=self.limits.target,
            max_pairs=self.limits.pairs,
            batches_multiple_of=self.batches_multiple_of,
            seed=self.seed + number,
        )
        sampler.set_epoch(self.epoch)
        for batch in sampler:
            yield [window[index] for index in batch]


def _collate_only_element(collate_fn: Callable[[list[dict]], Any], elements: list[list[dict]]) -> Any:
    """Collates the token batch that is the only element of a loader's batch."""
    (batch,) = elements
    return collate_fn(batch)
