"""Token batches: pairs of similar lengths, at most N source and N target tokens a batch (section 5.1 of the paper).

A batch is charged for its padded size, since that is what memory and arithmetic pay for: pairs times its longest
source, and pairs times its longest target. A length counts every token the model sees, end of sentence included.

How the batches come about:

1. *Cells.* Pairs with the same source and target length are interchangeable; a corpus is a table of cells with counts.
2. *Snake.* The cells are put in line by the side that decides how many pairs fit, the longer one, and inside one such
   length by the difference of the two sides, alternately upwards and downwards. Neighbours are close in both lengths.
3. *Cut.* The line is cut into batches, each as large as the limits allow.
4. *Shuffle.* Every epoch deals the pairs of a cell anew over the cell's places and shuffles the order of the batches.
   The shapes of the batches never change, so neither does their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch.utils.data import DataLoader, IterableDataset, Sampler, get_worker_info
from transformers.utils import logging


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class Limits:
    """What one batch may hold.

    Args:
        source: Most source tokens, padding included.
        target: Most target tokens, padding included.
        pairs: Most pairs; `None` for no limit of their own.
    """

    source: int
    target: int
    pairs: int | None = None

    def __post_init__(self):
        for name, value in (("source tokens", self.source), ("target tokens", self.target), ("pairs", self.pairs)):
            if value is not None and value < 1:
                raise ValueError(f"A batch of at most {value} {name} holds nothing; give a limit of 1 or more.")

    @classmethod
    def of(cls, max_tokens: int, max_source_tokens: int | None, max_target_tokens: int | None, max_pairs: int | None):
        """The limits as users write them: one number for both sides, unless a side has its own."""
        source = max_tokens if max_source_tokens is None else max_source_tokens
        target = max_tokens if max_target_tokens is None else max_target_tokens
        return cls(source, target, max_pairs)

    def rows(self, longest_source: int, longest_target: int) -> int:
        """How many pairs fit in a batch padded to these two lengths."""
        rows = min(self.source // longest_source, self.target // longest_target)
        return rows if self.pairs is None else min(rows, self.pairs)


def cut(
    source_lengths: np.ndarray, target_lengths: np.ndarray, limits: Limits, counts: np.ndarray | None = None
) -> np.ndarray:
    """Cut a line of pairs into consecutive batches, each as large as the limits allow.

    The order is the caller's, so that any order can be compared: `cut(source[order], target[order], limits)`.

    Args:
        source_lengths: Source lengths in order; none above `limits.source`.
        target_lengths: Target lengths in order; none above `limits.target`.
        limits: What one batch may hold.
        counts: How often each entry is repeated, for a line given as runs of equal pairs; once by default.

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
        # The batch is full. What remains of the run fills batches of its own, and its last pairs open the next one.
        if rows + taken:
            sizes.append(rows + taken)
        most = limits.rows(source, target)
        full, rows = divmod(count - taken, most)
        sizes.extend([most] * full)
        longest_source, longest_target = (source, target) if rows else (0, 0)
    return np.array([*sizes, rows] if rows else sizes, dtype=np.int64)


def _split_to_multiple(sizes: np.ndarray, multiple: int) -> np.ndarray:
    """Halve the largest batches until their number is a multiple, which loses and repeats no pair."""
    while len(sizes) % multiple:
        largest = int(sizes.argmax())
        if sizes[largest] == 1:
            raise ValueError(
                f"{sizes.sum()} pairs cannot be dealt out as a multiple of {multiple} batches under these limits; use "
                "fewer processes or a larger corpus."
            )
        half = sizes[largest] // 2
        sizes = np.insert(sizes, largest, half)
        sizes[largest + 1] -= half
    return sizes


def _snake(source_lengths: np.ndarray, target_lengths: np.ndarray, limits: Limits) -> np.ndarray:
    """The order in which neighbouring cells are close in both lengths: by the longer side, then back and forth."""
    # Under unequal limits "longer" means the larger share of its own limit; products keep it in whole numbers.
    source, target = source_lengths * limits.target, target_lengths * limits.source
    _, strip = np.unique(np.maximum(source, target), return_inverse=True)
    return np.lexsort((np.where(strip % 2, target - source, source - target), strip))


@dataclass(frozen=True)
class Padding:
    """The share of padded positions in a set of batches, as fractions of all positions.

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
        """The padding of consecutive batches of the given sizes."""
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
    """Batches of pairs with similar lengths, shuffled anew each epoch from seed and epoch, alike on every machine.

    Give it to a `DataLoader` as `batch_sampler`. It knows nothing of ranks: Accelerate and `Trainer` deal its batches
    out, batch i to process i modulo their number. If that number does not divide the number of batches, Accelerate
    repeats some; `batches_multiple_of` prevents that. The order of the batches is independent of their lengths, so an
    update over several processes mixes long and short pairs; loads stay alike because every batch is nearly full.
    It has no `batch_size`: Accelerate's `split_batches` refuses it, and `dispatch_batches` (off by default here)
    cannot join batches of different widths.

    To resume with Accelerate, call the loader's `set_epoch` before `skip_first_batches`. `Trainer` calls it after,
    which under several processes never arrives; let a callback's `on_epoch_begin` set the sampler's epoch there.

    Pairs whose lengths are rare have few to trade places with and mostly keep their company from epoch to epoch.

    Args:
        source_lengths: Number of source tokens of each pair, end of sentence included (see `column_lengths`).
        target_lengths: Number of target tokens of each pair, end of sentence included.
        max_tokens: Most tokens a batch holds on either side, padding included. The paper's batches: 25,000 and 25,000.
        max_source_tokens: Limit of the source side alone; `max_tokens` by default.
        max_target_tokens: Limit of the target side alone; `max_tokens` by default.
        max_pairs: Most pairs a batch holds; no limit by default.
        batches_multiple_of: The number of batches is a multiple of this; give the number of processes, or that times
            the gradient accumulation steps. The largest batches are halved to reach it.
        seed: Seed of the shuffling.
        over_limit: What to do with pairs that exceed a limit all by themselves: `"skip"` leaves them out with a
            warning and lists them in `skipped`, `"error"` raises.

    Attributes:
        skipped: Indices of the pairs that are left out because they exceed a limit by themselves.
        epoch: The epoch that the next iteration deals out.
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
        """Count the cells, put them in snake order, and note for each pair the place of its cell in that order."""
        width = int(target.max()) + 1
        cells, cell_of_pair, counts = np.unique(source * width + target, return_inverse=True, return_counts=True)
        order = _snake(cells // width, cells % width, self.limits)
        self._cell_source, self._cell_target = cells[order] // width, cells[order] % width
        self._cell_counts = counts[order]
        # The narrowest type: sixteen bits, which hold most corpora, sort several times faster than thirty-two.
        place = np.empty(len(cells), dtype=np.min_scalar_type(len(cells)))
        place[order] = np.arange(len(cells))
        self._place = place[cell_of_pair]

    def __len__(self) -> int:
        """Batches in a whole epoch, the same in every epoch and wherever the next iteration starts."""
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
        """This epoch's line of pairs, dealt anew inside each cell, and this epoch's order of the batches."""
        rng = np.random.Generator(np.random.PCG64([self.seed, self.epoch]))
        pairs = rng.permutation(len(self._place))
        # Only a stable sort leaves ties in the same order on every processor.
        pairs = pairs[np.argsort(self._place[pairs], kind="stable")]
        return pairs if self._kept is None else self._kept[pairs], rng.permutation(len(self))

    @property
    def sampler(self) -> TokenBatchSampler:
        """The sampler itself: under several processes Accelerate looks for `set_epoch` at this name only."""
        return self

    def set_epoch(self, epoch: int, start_batch: int | None = None) -> None:
        """Choose the epoch of the next iteration and, for a resumed run, its first batch.

        Args:
            epoch: The epoch, from 0.
            start_batch: How many batches to pass over, counted over all processes. By default none, except that a
                place set by `load_state_dict` for this same epoch is kept.
        """
        if start_batch is not None or epoch != self.epoch:
            self._start = self._position = start_batch or 0
        self.epoch = epoch

    def state_dict(self) -> dict[str, int]:
        """The place of the next batch.

        A loader with workers fetches ahead, and Accelerate's always does, so that their sampler is further on than
        the training. There, count the batches trained on and pass them as `start_batch` or to `skip_first_batches`.
        """
        if self._position == len(self):
            return {"epoch": self.epoch + 1, "batch": 0}
        return {"epoch": self.epoch, "batch": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a place noted by `state_dict`; the lengths, limits and seed must be those of that time."""
        self.set_epoch(state["epoch"], start_batch=state["batch"])

    def padding(self) -> Padding:
        """The padding of an epoch; every epoch has the same."""
        source = np.repeat(self._cell_source, self._cell_counts)
        target = np.repeat(self._cell_target, self._cell_counts)
        return Padding.measure(source, target, self._sizes)


def _check_options(batches_multiple_of: int, over_limit: str) -> None:
    if batches_multiple_of < 1:
        raise ValueError(f"batches_multiple_of is {batches_multiple_of}; give the number of processes, 1 or more.")
    if over_limit not in ("skip", "error"):
        raise ValueError(f"over_limit is {over_limit!r}; give 'skip' or 'error'.")


def _length_array(lengths: Sequence[int] | np.ndarray, side: str) -> np.ndarray:
    """Lengths as whole numbers in an array, checked."""
    lengths = np.asarray(lengths[:])  # the slice turns a column of `datasets` into a list at once, not item by item
    if lengths.ndim != 1 or (lengths.size and not np.issubdtype(lengths.dtype, np.integer)):
        raise ValueError(
            f"The {side} lengths are an array of {lengths.dtype} with {lengths.ndim} dimensions; give one whole "
            "number per pair, for instance from column_lengths()."
        )
    if lengths.size and lengths.min() < 1:
        raise ValueError(
            f"Pair {lengths.argmin()} has a {side} length of {lengths.min()}; every side ends in an end-of-sentence "
            "token, so that the shortest length is 1. Tokenise with special tokens, or filter empty lines."
        )
    return lengths.astype(np.int64)


def _report_over_limit(source: np.ndarray, target: np.ndarray, limits: Limits, over_limit: str) -> None:
    """Say how many pairs exceed a limit by themselves: a warning, or a ValueError where the caller asked for one."""
    message = (
        f"{len(source)} pair(s) exceed the batch limit of {limits.source} source and {limits.target} target tokens by "
        f"themselves (the longest: {source.max()} source, {target.max()} target tokens). Raise the limit, or truncate "
        "or filter these pairs."
    )
    if over_limit == "error":
        raise ValueError(message)
    logger.warning(f"{message} They are left out of every epoch.")


def column_lengths(dataset: Dataset, column: str) -> np.ndarray:
    """The lengths of the lists in a column, read from Arrow's offsets without touching the lists themselves.

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
    # A selection or shuffle leaves the table as it was and keeps the chosen rows beside it.
    return lengths if dataset._indices is None else lengths[dataset._indices.column(0).to_numpy()]


class WindowedTokenBatches(IterableDataset):
    """Token batches of a stream: reads a window of pairs, batches and shuffles it, and goes on to the next.

    Yields lists of examples. The stream is any iterable of examples that starts afresh on each `iter`, such as a
    `datasets.IterableDataset`, whose `set_epoch` is called along. The last window is joined to the one before if it
    is less than half full. There is no `__len__`: a stream does not know its end, so `Trainer` needs `max_steps`.
    Reading again from the start and passing over the first batches gives the same batches: a resumed run does that.

    Several processes: each reads the whole stream and takes every n-th batch. Set `batches_multiple_of` to their
    number and `dispatch_batches=False` (`DataLoaderConfiguration`, or `accelerator_config` of the training arguments)
    and prepare the loader of `dataloader()`. Each window then makes a multiple of that many batches, so every process
    gets equally many and every pair is seen once. The default dispatching fails there: it joins batches of
    different widths.

    Args:
        stream: Iterable of examples with two columns of token ids.
        window: Pairs held in memory and batched together. More pairs, less padding and a better shuffle.
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
        """Choose the epoch of the next iteration, for the stream's own shuffling as well."""
        self.epoch = epoch
        if hasattr(self.stream, "set_epoch"):
            self.stream.set_epoch(epoch)

    def dataloader(self, collate_fn: Callable[[list[dict]], Any], **options) -> DataLoader:
        """A loader of collated batches that Accelerate can deal out to several processes.

        A plain `DataLoader(batches, batch_size=None, collate_fn=...)` does for one process. Accelerate counts a
        loader's batches by its `batch_size`, so this one has batches of one element, itself a whole token batch.
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
        """The stream without the pairs that exceed a limit by themselves; reports the first one and their number."""
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
        """Windows of pairs, the last never less than half full unless it is the only one."""
        least = self.window // 2
        window = list(islice(pairs, self.window))
        while window:
            ahead = list(islice(pairs, least))
            if len(ahead) < least:
                window, ahead = window + ahead, []
            yield window
            window = ahead + list(islice(pairs, self.window - least)) if ahead else []

    def _batches(self, window: list[dict[str, Any]], number: int) -> Iterator[list[dict[str, Any]]]:
        """The batches of one window, shuffled by its number as well as by seed and epoch."""
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
    """Collate the token batch that is the only element of a loader's batch."""
    (batch,) = elements
    return collate_fn(batch)
