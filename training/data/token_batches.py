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

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset
from torch.utils.data import DataLoader, IterableDataset, Sampler, get_worker_info
from transformers.utils import logging


if TYPE_CHECKING:
    from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments


logger = logging.get_logger(__name__)


def cut(longer_sides: np.ndarray, max_tokens: int, counts: np.ndarray | None = None) -> np.ndarray:
    """Cuts ordered pairs into consecutive batches, each as large as the limit allows.

    The caller chooses the order, so orders can be compared.

    Args:
        longer_sides: The length of the longer side of each pair, in order; none above `max_tokens`.
        max_tokens: Maximum tokens of a batch on either side, padding included.
        counts: How often each entry is repeated, for runs of equal pairs; once by default.

    Returns:
        The number of pairs in each batch.
    """
    counts = np.ones(len(longer_sides), dtype=np.int64) if counts is None else counts
    sizes, rows, longest = [], 0, 0
    for length, count in zip(longer_sides.tolist(), counts.tolist(), strict=True):
        wider = max(longest, length)
        taken = min(count, max(0, max_tokens // wider - rows))
        if taken == count:
            rows, longest = rows + count, wider
            continue
        # The batch is full. The rest of the run fills batches of its own, and its last pairs start the next batch.
        if rows + taken:
            sizes.append(rows + taken)
        most = max_tokens // length
        full, rows = divmod(count - taken, most)
        sizes.extend([most] * full)
        longest = length if rows else 0
    return np.array([*sizes, rows] if rows else sizes, dtype=np.int64)


def _split_to_multiple(sizes: np.ndarray, multiple: int) -> np.ndarray:
    """Halves the largest batches until their number is a multiple. No pair is lost or repeated."""
    while len(sizes) % multiple:
        largest = int(sizes.argmax())
        if sizes[largest] == 1:
            raise ValueError(
                f"{sizes.sum()} pairs cannot be divided into a multiple of {multiple} batches of this size; use fewer "
                "processes or a larger corpus."
            )
        half = int(sizes[largest]) // 2
        sizes = np.insert(sizes, largest, half)
        sizes[largest + 1] -= half
    return sizes


def _snake(source_lengths: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """Returns the order in which neighbouring cells are close in both lengths: by the longer side, back and forth."""
    _, strip = np.unique(np.maximum(source_lengths, target_lengths), return_inverse=True)
    difference = source_lengths - target_lengths
    return np.lexsort((np.where(strip % 2, -difference, difference), strip))


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
        batches_multiple_of: The number of batches is a multiple of this; give the number of processes, or that times
            the gradient accumulation steps. The largest batches are halved to reach it.
        seed: Seed of the shuffling.

    Attributes:
        skipped: Indices of the pairs that exceed the limit by themselves. They are left out, with a warning.
        epoch: The epoch of the next iteration.
    """

    def __init__(
        self,
        source_lengths: Sequence[int] | np.ndarray,
        target_lengths: Sequence[int] | np.ndarray,
        *,
        max_tokens: int = 25_000,
        batches_multiple_of: int = 1,
        seed: int = 0,
    ):
        if max_tokens < 1:
            raise ValueError(f"A batch of at most {max_tokens} tokens holds nothing; give a limit of 1 or more.")
        if batches_multiple_of < 1:
            raise ValueError(f"batches_multiple_of is {batches_multiple_of}; give the number of processes, 1 or more.")
        self.seed, self.epoch, self._start = seed, 0, 0
        source, target = _length_array(source_lengths, "source"), _length_array(target_lengths, "target")
        if len(source) != len(target):
            raise ValueError(f"Got {len(source)} source but {len(target)} target lengths; every pair needs both.")

        fits = np.maximum(source, target) <= max_tokens
        self.skipped = np.flatnonzero(~fits)
        if len(self.skipped):
            logger.warning(
                f"{len(self.skipped)} pair(s) exceed the batch limit of {max_tokens} tokens by themselves (the "
                f"longest: {source[~fits].max()} source, {target[~fits].max()} target tokens) and are left out. Raise "
                "max_tokens, or truncate or filter these pairs."
            )
            source, target = source[fits], target[fits]
        if not len(source):
            raise ValueError("No pair is left to batch; give a corpus that is not empty and a limit that fits it.")
        self._kept = np.flatnonzero(fits) if len(self.skipped) else None
        self._lay_out(source, target)
        longer_sides = np.maximum(self._cell_source, self._cell_target)
        self._sizes = _split_to_multiple(cut(longer_sides, max_tokens, self._cell_counts), batches_multiple_of)

    def _lay_out(self, source: np.ndarray, target: np.ndarray) -> None:
        """Counts the cells, sorts them in snake order, and stores for each pair the rank of its cell in that order."""
        width = int(target.max()) + 1
        cells, cell_of_pair, counts = np.unique(source * width + target, return_inverse=True, return_counts=True)
        order = _snake(cells // width, cells % width)
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
            start_batch: How many batches to skip, counted over all processes. By default none, but a number that was
                given for the same epoch is kept: Accelerate's loader sets the epoch once more.
        """
        if start_batch is not None or epoch != self.epoch:
            self._start = start_batch or 0
        self.epoch = epoch

    def tokens(self) -> tuple[int, int]:
        """Returns the source tokens and the target tokens of an epoch."""
        return int(self._cell_source @ self._cell_counts), int(self._cell_target @ self._cell_counts)

    def padding(self) -> Padding:
        """Returns the padding of an epoch, which is the same for every epoch."""
        source: np.ndarray = np.repeat(self._cell_source, self._cell_counts)
        target: np.ndarray = np.repeat(self._cell_target, self._cell_counts)
        return Padding.measure(source, target, self._sizes)


def describe_update(sampler: TokenBatchSampler, args: TranslationTrainingArguments) -> str:
    """Returns a sentence about the size of an update: its limit, and what updates hold on average."""
    updates = len(sampler) // args.batches_per_update
    source, target = (tokens / updates for tokens in sampler.tokens())
    batches = "1 batch" if args.batches_per_update == 1 else f"{args.batches_per_update} batches"
    return (
        f"An update has {batches} of at most {args.max_tokens:,} + {args.max_tokens:,} tokens ({args.world_size} "
        f"process(es), {args.gradient_accumulation_steps} for each), on average {source:,.0f} + {target:,.0f} tokens. "
        f"An epoch has {updates:,} updates, {sampler.padding()}."
    )


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


class StreamedTokenBatches(IterableDataset):
    """Token batches of a stream of text, without an end; yields lists of tokenised examples.

    An update takes `parts` batches, one from each part of the stream: pair n belongs to part n modulo `parts`. A
    process has some of the parts, and each of its loader's workers has some of these. Everyone reads the stream, but
    tokenises and batches only the parts that it has. So the batches of an update do not depend on the number of
    processes and workers.

    A window of each part is batched and shuffled together; a pass ends a window. Passes follow each other for ever, so
    `Trainer` needs `max_steps`. A resumed run reads from the start and skips batches.

    Args:
        stream: Pairs of text. It restarts on each `iter`.
        encode: Turns columns of text into columns with `input_ids` and `labels`.
        parts: Batches of an update.
        own: The parts of this process.
        window: Pairs of a part that are batched together. More pairs give less padding and a better shuffle.
        max_tokens: As for `TokenBatchSampler`.
        seed: Seed of the shuffling.
    """

    def __init__(
        self,
        stream: Iterable[dict[str, Any]],
        encode: Callable[[dict[str, list]], dict[str, list]],
        *,
        parts: int = 1,
        own: Sequence[int] = (0,),
        window: int = 50_000,
        max_tokens: int = 25_000,
        seed: int = 0,
    ):
        self.stream, self.encode = stream, encode
        self.parts, self.own, self.window = parts, own, window
        self.max_tokens, self.seed = max_tokens, seed

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: a stream counts its passes by itself."""

    def dataloader(
        self, collate_fn: Callable[[list[dict]], Any], *, num_workers: int = 0, **options: Any
    ) -> DataLoader:
        """Returns a loader of collated batches, with as many of `num_workers` as can share the parts evenly.

        It must not be sharded again. Accelerate counts batches by the loader's `batch_size`, so this loader has
        batches of one element, which is a complete token batch.
        """
        workers = next((n for n in range(num_workers, 0, -1) if len(self.own) % n == 0), 0)
        collate = partial(_collate_only_element, collate_fn)
        return DataLoader(self, batch_size=1, collate_fn=collate, num_workers=workers, **options)

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        worker = get_worker_info()
        own = self.own if worker is None else self.own[worker.id :: worker.num_workers]
        waiting: dict[int, deque[list[dict[str, Any]]]] = {part: deque() for part in own}
        windows = self._windows(own)
        for part in cycle(own):
            while not waiting[part]:
                for each, batches in next(windows).items():
                    waiting[each].extend(batches)
            yield waiting[part].popleft()

    def _windows(self, own: Sequence[int]) -> Iterator[dict[int, list[list[dict[str, Any]]]]]:
        """Yields the batches of one window of each part, pass after pass."""
        first = empty_passes = 0  # the number of a window's first pair, over all passes; passes without a batch
        while empty_passes < self.parts:  # a short pass may have nothing for a part, and the next one has
            pairs, empty_passes = iter(self.stream), empty_passes + 1
            while True:
                end, shares = self._deal(islice(pairs, self.window * self.parts), first, own)
                if end == first:
                    break
                batches = {part: self._batches(share, first + part) for part, share in shares.items()}
                empty_passes = 0 if any(batches.values()) else empty_passes
                first = end
                yield batches
        raise ValueError(
            f"The stream has no pair of at most {self.max_tokens} tokens; give text, or a limit that fits it."
        )

    def _deal(
        self, pairs: Iterator[dict[str, Any]], first: int, own: Sequence[int]
    ) -> tuple[int, dict[int, list[dict[str, Any]]]]:
        """Returns the number behind that of the last pair, and the pairs of the parts that are kept."""
        end, shares = first, {part: list[dict[str, Any]]() for part in own}
        for end, pair in enumerate(pairs, first + 1):
            part = (end - 1) % self.parts
            if part in shares:
                shares[part].append(pair)
        return end, shares

    def _batches(self, pairs: list[dict[str, Any]], number: int) -> list[list[dict[str, Any]]]:
        """Returns the token batches of pairs of text, shuffled by the seed and a number."""
        if not pairs:
            return []
        columns = self.encode({name: [pair[name] for pair in pairs] for name in pairs[0]})
        source, target = (list(map(len, columns[name])) for name in ("input_ids", "labels"))
        if min(map(max, source, target)) > self.max_tokens:
            return []
        sampler = TokenBatchSampler(source, target, max_tokens=self.max_tokens, seed=self.seed)
        sampler.set_epoch(number)
        return [[{name: column[row] for name, column in columns.items()} for row in batch] for batch in sampler]


def _collate_only_element(collate_fn: Callable[[list[dict]], Any], elements: list[list[dict]]) -> Any:
    """Collates the token batch that is the only element of a loader's batch."""
    (batch,) = elements
    return collate_fn(batch)
