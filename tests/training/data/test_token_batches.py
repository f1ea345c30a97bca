"""Token batches: every pair once, no batch over its limit, the same order from the same seed, under any sharding."""

from itertools import chain, islice

import datasets
import numpy as np
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments
from transformers.testing_utils import CaptureLogger

from vanilla_transformer.training.data import token_batches as batching
from vanilla_transformer.training.data.token_batches import (
    Padding,
    StreamedTokenBatches,
    TokenBatchSampler,
    column_lengths,
    cut,
)


LONGEST = 40
pair_lengths = st.tuples(st.integers(1, LONGEST), st.integers(1, LONGEST))
limits = st.integers(LONGEST, 200)
seeds = st.integers(0, 1000)


def corpora(min_size: int):
    """Source and target lengths of a small corpus, as two arrays."""
    return st.lists(pair_lengths, min_size=min_size, max_size=150).map(lambda pairs: np.array(pairs).T)


def sampler_of(lengths, max_tokens: int, **options) -> TokenBatchSampler:
    return TokenBatchSampler(*lengths, max_tokens=max_tokens, **options)


def natural_lengths(pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated lengths, spread the way those of sentences and their translations are."""
    rng = np.random.default_rng(seed)
    source = np.exp(rng.normal(2.6, 0.35, pairs)).astype(int) + 1
    target = np.maximum(source * rng.normal(1.02, 0.12, pairs) + rng.normal(0, 1, pairs), 1).astype(int) + 1
    return source, target


def assert_within(max_tokens: int, lengths, batch) -> None:
    for side in lengths:
        assert len(batch) * side[batch].max() <= max_tokens


# Cutting


@given(corpora(1), limits)
@settings(max_examples=100, deadline=None)
def test_cut_is_greedy(lengths, limits):
    """The oracle adds pair after pair and opens a batch whenever the next one would not fit."""
    sizes, batch = [], []
    for longer in lengths.max(axis=0).tolist():
        grown = [*batch, longer]
        if len(grown) * max(grown) <= limits:
            batch = grown
        else:
            sizes.append(len(batch))
            batch = [longer]
    assert cut(lengths.max(axis=0), limits).tolist() == [*sizes, len(batch)]


@given(st.lists(st.tuples(st.integers(1, LONGEST), st.integers(1, 60)), min_size=1, max_size=30), limits)
@settings(max_examples=100, deadline=None)
def test_cut_of_runs_is_cut_of_the_pairs(runs, limits):
    lengths, counts = np.array(runs).T
    assert cut(lengths, limits, counts).tolist() == cut(np.repeat(lengths, counts), limits).tolist()


def test_padding_of_a_small_example():
    padding = Padding.measure(np.array([2, 4, 5]), np.array([3, 3, 1]), np.array([2, 1]))
    assert padding == Padding(batches=2, pairs=3, source=2 / 13, target=0.0, both=2 / 20)
    assert str(padding) == "2 batches, 1.5 pairs each, 10.0% padding"


# The sampler


@given(corpora(30), limits, seeds, st.integers(0, 5), st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_every_pair_once_and_no_batch_over_its_limit(lengths, limits, seed, epoch, multiple):
    limits *= 2  # at least two pairs to a batch, so that there is always one to halve
    sampler = sampler_of(lengths, limits, seed=seed, batches_multiple_of=multiple)
    sampler.set_epoch(epoch)
    batches = list(sampler)
    assert sorted(chain.from_iterable(batches)) == list(range(lengths.shape[1]))
    assert len(batches) == len(sampler)
    assert len(batches) % multiple == 0
    for batch in batches:
        assert_within(limits, lengths, batch)


@given(corpora(1), limits, seeds, st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_same_seed_same_order(lengths, limits, seed, epoch):
    first, second = sampler_of(lengths, limits, seed=seed), sampler_of(lengths.tolist(), limits, seed=seed)
    list(first)  # earlier epochs leave no trace
    for sampler in (first, second):
        sampler.set_epoch(epoch)
    assert list(first) == list(second)


@given(corpora(1), limits, seeds, st.data())
@settings(max_examples=100, deadline=None)
def test_resumed_is_uninterrupted(lengths, limits, seed, data):
    sampler = sampler_of(lengths, limits, seed=seed)
    sampler.set_epoch(3)
    whole = list(sampler)
    seen = data.draw(st.integers(0, len(whole)), label="batches before the interruption")
    resumed = sampler_of(lengths, limits, seed=seed)
    resumed.set_epoch(3, start_batch=seen)
    resumed.set_epoch(3)  # as Accelerate's loader does; it must not lose the place
    assert list(resumed) == whole[seen:]
    sampler.set_epoch(4)
    resumed.set_epoch(4)
    assert list(resumed) == list(sampler)


def test_start_batch_holds_for_one_iteration():
    sampler = TokenBatchSampler(*natural_lengths(500), max_tokens=256)
    whole = list(sampler)
    sampler.set_epoch(0, start_batch=3)
    assert len(sampler) == len(whole)
    assert list(sampler) == whole[3:]
    assert list(sampler) == whole


def test_an_abandoned_epoch_starts_over():
    sampler = TokenBatchSampler(*natural_lengths(500), max_tokens=256)
    first = next(iter(sampler))
    assert next(iter(sampler)) == first


def test_epochs_differ_in_order_and_company():
    sampler = TokenBatchSampler(*natural_lengths(5000), max_tokens=512)
    epochs = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        epochs.append(list(sampler))
    assert [len(batch) for batch in epochs[0]] != [len(batch) for batch in epochs[1]]
    company = [{frozenset(batch) for batch in batches} for batches in epochs]
    assert len(company[0] & company[1]) < len(sampler) / 4
    other_seed = TokenBatchSampler(*natural_lengths(5000), max_tokens=512, seed=1)
    assert list(other_seed) != epochs[0]


def test_batch_order_is_independent_of_length():
    source, target = natural_lengths(20_000)
    sampler = TokenBatchSampler(source, target, max_tokens=512)
    longest = [source[batch].max() for batch in sampler]
    correlation = np.corrcoef(longest, np.arange(len(longest)))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(len(longest))  # four standard deviations of chance


@pytest.mark.parametrize("multiple", [1, 7])
def test_padding_is_that_of_the_batches(multiple):
    lengths = natural_lengths(3000)
    sampler = TokenBatchSampler(*lengths, max_tokens=400, batches_multiple_of=multiple)
    sampler.set_epoch(5)
    batches = list(sampler)
    shares = []
    for sides in (lengths[:1], lengths[1:], lengths):
        positions = sum(len(batch) * side[batch].max() for batch in batches for side in sides)
        shares.append(1 - sum(side.sum() for side in sides) / positions)
    padding = sampler.padding()
    assert (padding.batches, padding.pairs) == (len(batches), 3000)
    assert [padding.source, padding.target, padding.both] == pytest.approx(shares)


def test_padding_beats_sorting_by_one_length():
    source, target = natural_lengths(30_000)

    def padding(order):
        sizes = cut(np.maximum(source, target)[order], 4096)
        return Padding.measure(source[order], target[order], sizes).both

    ours = TokenBatchSampler(source, target, max_tokens=4096).padding().both
    assert ours < 0.05
    assert ours < 0.7 * padding(np.lexsort((target, source)))
    assert ours < 0.7 * padding(np.argsort(np.maximum(source, target), kind="stable"))


# Limits and bad input


def test_pairs_over_the_limit_are_reported():
    with CaptureLogger(batching.logger) as log:
        sampler = TokenBatchSampler([5, 90, 6, 7], [5, 6, 70, 7], max_tokens=64)
    assert sampler.skipped.tolist() == [1, 2]
    assert sorted(chain.from_iterable(sampler)) == [0, 3]
    for fact in ("2 pair(s)", "limit of 64 tokens", "90 source", "70 target", "Raise max_tokens"):
        assert fact in log.out


@pytest.mark.parametrize(
    ("lengths", "options", "message"),
    [
        (([1, 2], [1]), {}, "2 source but 1 target"),
        (([], []), {}, "No pair is left"),
        (([9, 9], [1, 1]), {"max_tokens": 8}, "No pair is left"),
        (([3, 0], [1, 1]), {}, "Pair 1 has a source length of 0"),
        (([1], [-2]), {}, "target length of -2"),
        (([1.5], [2]), {}, "source lengths are an array of float64"),
        (([[1]], [2]), {}, "with 2 dimensions"),
        (([1], [1]), {"max_tokens": 0}, "at most 0 tokens"),
        (([1], [1]), {"batches_multiple_of": 0}, "batches_multiple_of is 0"),
        (([1, 1], [1, 1]), {"batches_multiple_of": 3}, "2 pairs cannot be divided into a multiple of 3"),
    ],
)
def test_bad_input_names_value_and_remedy(lengths, options, message):
    with pytest.raises(ValueError, match=message):
        TokenBatchSampler(*lengths, **options)


# Loaders: torch, Accelerate, Trainer


class Pairs(torch.utils.data.Dataset):
    """Pairs of given lengths that carry their index, padded by `collate`."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths[0])

    def __getitem__(self, index):
        source, target = (int(side[index]) for side in self.lengths)
        return {"index": index, "input_ids": [1] * source, "labels": [1] * target}

    def __iter__(self):
        return (self[index] for index in range(len(self)))


def collate(examples):
    def pad(name):
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(example[name]) for example in examples], True)

    indices = torch.tensor([example["index"] for example in examples])
    return {"index": indices, "input_ids": pad("input_ids"), "labels": pad("labels")}


def indices_of(loader) -> list[list[int]]:
    return [batch["index"].tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
def test_plain_dataloader(workers):
    lengths = natural_lengths(300)
    sampler = TokenBatchSampler(*lengths, max_tokens=256)
    loader = DataLoader(Pairs(lengths), batch_sampler=sampler, collate_fn=collate, num_workers=workers)
    assert len(loader) == len(sampler)
    assert indices_of(loader) == list(sampler)
    assert max(batch["labels"].numel() for batch in loader) <= 256


@given(corpora(30), seeds, st.integers(1, 4), st.booleans())
@settings(max_examples=50, deadline=None)
def test_accelerate_shards_are_exact(lengths, seed, processes, even_batches):
    sampler = TokenBatchSampler(*lengths, max_tokens=3 * LONGEST, seed=seed, batches_multiple_of=processes)
    shards = [BatchSamplerShard(sampler, processes, rank, even_batches=even_batches) for rank in range(processes)]
    ranks = [list(shard) for shard in shards]
    assert {len(shard) for shard in shards} == {len(batches) for batches in ranks} == {len(sampler) // processes}
    assert sorted(chain.from_iterable(chain.from_iterable(ranks))) == list(range(lengths.shape[1]))


def prepared(sampler, lengths, processes, rank):
    loader = DataLoader(Pairs(lengths), batch_sampler=sampler, collate_fn=collate)
    return prepare_data_loader(loader, num_processes=processes, process_index=rank)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_accelerate_loaders_shuffle_and_resume(processes):
    """Accelerate passes its epochs on to the sampler under any number of processes, and skips batches exactly."""
    lengths = natural_lengths(300)

    def fresh(rank):
        sampler = TokenBatchSampler(*lengths, max_tokens=256, batches_multiple_of=processes)
        return prepared(sampler, lengths, processes, rank)

    loaders = [fresh(rank) for rank in range(processes)]
    epochs = [[indices_of(loader) for loader in loaders] for _ in range(2)]
    for ranks in epochs:
        assert sorted(chain.from_iterable(chain.from_iterable(ranks))) == list(range(300))
    assert epochs[0] != epochs[1]

    for rank in range(processes):
        resumed = fresh(rank)
        resumed.set_epoch(1)
        assert indices_of(skip_first_batches(resumed, 2)) == epochs[1][rank][2:]


@pytest.mark.parametrize("processes", [1, 2])
def test_setting_the_samplers_own_epoch_after_skipping(processes):
    """The trainer skips batches first and sets the epoch second; then the sampler itself must be told."""
    lengths = natural_lengths(300)
    sampler = TokenBatchSampler(*lengths, max_tokens=256, batches_multiple_of=processes)
    sampler.set_epoch(1)
    expected = list(sampler)[::processes][2:]

    fresh = TokenBatchSampler(*lengths, max_tokens=256, batches_multiple_of=processes)
    loader = skip_first_batches(prepared(fresh, lengths, processes, rank=0), 2)
    loader.set_epoch(1)
    fresh.set_epoch(1)
    assert indices_of(loader) == expected


def test_accelerator_prepare():
    lengths = natural_lengths(300)
    sampler = TokenBatchSampler(*lengths, max_tokens=256)
    loader = Accelerator(cpu=True).prepare(DataLoader(Pairs(lengths), batch_sampler=sampler, collate_fn=collate))
    assert len(loader) == len(sampler)
    for _ in range(2):
        batches = indices_of(loader)
        assert batches == list(sampler)
        assert sorted(chain.from_iterable(batches)) == list(range(300))


class Recorder(torch.nn.Module):
    """A model that remembers which pairs it saw, as the trainer presents them."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def forward(self, index, input_ids, labels):
        self.seen.append(index.tolist())
        return {"loss": (self.weight - 1) ** 2}


class TokenBatchTrainer(Trainer):
    def get_train_dataloader(self):
        sampler = TokenBatchSampler(*self.train_dataset.lengths, max_tokens=256, batches_multiple_of=2)
        loader = DataLoader(self.train_dataset, batch_sampler=sampler, collate_fn=self.data_collator)
        return self.accelerator.prepare(loader)


def train(folder, pairs, resume=None, **options) -> Trainer:
    arguments = TrainingArguments(folder, use_cpu=True, report_to="none", disable_tqdm=True, seed=1, **options)
    trainer = TokenBatchTrainer(Recorder(), arguments, data_collator=collate, train_dataset=pairs)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_trainer_sees_every_pair_once_and_resumes_mid_epoch(tmp_path):
    pairs = Pairs(natural_lengths(300))
    per_epoch = len(TokenBatchSampler(*pairs.lengths, max_tokens=256, batches_multiple_of=2))
    whole = train(tmp_path / "whole", pairs, num_train_epochs=2, save_steps=per_epoch + 2)
    seen = whole.model.seen
    assert whole.state.global_step == len(seen) == 2 * per_epoch
    for epoch in (seen[:per_epoch], seen[per_epoch:]):
        assert sorted(chain.from_iterable(epoch)) == list(range(300))
    assert seen[:per_epoch] != seen[per_epoch:]

    checkpoint = str(tmp_path / "whole" / f"checkpoint-{per_epoch + 2}")
    resumed = train(tmp_path / "resumed", pairs, resume=checkpoint, num_train_epochs=2, save_strategy="no")
    assert resumed.model.seen == seen[per_epoch + 2 :]


# Lengths of a dataset's column


def token_dataset(rows: int = 20) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"input_ids": [[7] * (row % 9) for row in range(rows)], "label": range(rows)})


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset,
        lambda dataset: dataset.shuffle(seed=1),
        lambda dataset: dataset.select([5, 2, 2, 19]),
        lambda dataset: dataset.select(range(4, 11)),
        lambda dataset: dataset.shuffle(seed=1).filter(lambda row: row["label"] % 2, keep_in_memory=True),
        lambda dataset: datasets.concatenate_datasets([dataset, dataset.select([3, 1])]),
        lambda dataset: dataset.with_format("torch"),
        lambda dataset: dataset.cast_column("input_ids", datasets.LargeList(datasets.Value("int32"))),
    ],
)
def test_column_lengths(change):
    dataset = change(token_dataset())
    expected = [len(row) for row in dataset.with_format(None)["input_ids"]]
    assert column_lengths(dataset, "input_ids").tolist() == expected


def test_column_lengths_names_what_is_wrong():
    with pytest.raises(ValueError, match="no column 'labels' but"):
        column_lengths(token_dataset(), "labels")
    with pytest.raises(ValueError, match=r"'label' holds .*int64.*, not lists"):
        column_lengths(token_dataset(), "label")


def test_a_column_of_lengths_is_accepted():
    dataset = datasets.Dataset.from_dict({"source": [3, 4, 5], "target": [4, 4, 6]})
    sampler = TokenBatchSampler(dataset["source"], dataset["target"], max_tokens=12)
    assert sorted(map(sorted, sampler)) == [[0, 1], [2]]


# Streams


def as_text(lengths) -> list[dict[str, str]]:
    """Pairs of text with the given numbers of letters. The first letters of each source are its number."""
    return [{"source": f"{row:0{source}}", "target": "x" * target} for row, (source, target) in enumerate(lengths.T)]


def by_letter(columns: dict[str, list]) -> dict[str, list]:
    return {**columns, "input_ids": list(map(list, columns["source"])), "labels": list(map(list, columns["target"]))}


def numbers(batches) -> list[list[int]]:
    return [[int(example["source"]) for example in batch] for batch in batches]


def long_lengths(pairs: int) -> np.ndarray:
    return np.array(natural_lengths(pairs)) + 3  # room for the number


def stream_of(lengths, **options) -> StreamedTokenBatches:
    return StreamedTokenBatches(as_text(lengths), by_letter, **{"max_tokens": 512, "window": 60, **options})


@given(st.integers(1, 300), st.integers(1, 4), st.integers(5, 100), seeds)
@settings(max_examples=40, deadline=None)
def test_a_pass_over_a_stream_has_every_pair_once(pairs, parts, window, seed):
    lengths = long_lengths(pairs)
    batches = iter(stream_of(lengths, parts=parts, own=range(parts), window=window, seed=seed))
    passes: list[int] = []
    while len(passes) < 20 * pairs:
        (batch,) = numbers([next(batches)])
        assert_within(512, lengths, batch)
        passes += batch
    counts = np.bincount(passes, minlength=pairs)
    assert counts.max() - counts.min() <= 20  # parts take turns: one may be some windows ahead of the others
    assert counts.min() > 0


@pytest.mark.parametrize(("processes", "workers"), [(1, 0), (1, 2), (2, 0), (2, 2), (4, 2)])
def test_batches_of_a_stream_do_not_depend_on_processes_and_workers(processes, workers):
    def loader(own, num_workers):
        return stream_of(long_lengths(2000), parts=4, own=own).dataloader(numbers_of, num_workers=num_workers)

    expected = list(islice(loader(range(4), 0), 40))
    loaders = [iter(loader(range(rank, 4, processes), workers)) for rank in range(processes)]
    assert [next(loaders[number % processes]) for number in range(40)] == expected
    assert len({tuple(sorted(batch)) for batch in expected}) == 40


def numbers_of(batch) -> list[int]:
    return [int(example["source"]) for example in batch]


def test_a_process_tokenises_its_own_share_of_a_stream():
    tokenised = []

    def encode(columns):
        tokenised.extend(map(int, columns["source"]))
        return by_letter(columns)

    batches = StreamedTokenBatches(as_text(long_lengths(400)), encode, parts=8, own=[3], window=50, max_tokens=512)
    next(iter(batches))
    assert tokenised == list(range(3, 400, 8))


def test_passes_over_a_stream_differ():
    batches = iter(stream_of(long_lengths(100), window=200))
    passes = [[], []]
    for numbers_of_pass in passes:
        while sum(map(len, numbers_of_pass)) < 100:
            numbers_of_pass += numbers([next(batches)])
    assert passes[0] != passes[1]
    assert all(sorted(chain.from_iterable(each)) == list(range(100)) for each in passes)


def test_streams_report_what_they_leave_out():
    batches = iter(stream_of(np.array([[3, 50, 3, 60], [3, 4, 3, 3]]), max_tokens=40))
    with CaptureLogger(batching.logger) as log:
        assert sorted(chain.from_iterable(numbers([next(batches)]))) == [0, 2]
    assert "2 pair(s) exceed the batch limit of 40" in log.out


@pytest.mark.parametrize("lengths", [np.zeros((2, 0), int), np.array([[50], [3]])])
def test_a_stream_without_a_pair_is_refused(lengths):
    with pytest.raises(ValueError, match="no pair of at most 40 tokens"):
        next(iter(stream_of(lengths, max_tokens=40, parts=2)))
