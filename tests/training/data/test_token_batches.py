"""Token batches: every pair once, no batch over its limit, the same order from the same seed, under any sharding."""

from itertools import chain

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
    Limits,
    Padding,
    TokenBatchSampler,
    WindowedTokenBatches,
    column_lengths,
    cut,
)


LONGEST = 40
pair_lengths = st.tuples(st.integers(1, LONGEST), st.integers(1, LONGEST))
limits = st.builds(Limits, *[st.integers(LONGEST, 200)] * 2, pairs=st.none() | st.integers(1, 30))
seeds = st.integers(0, 1000)


def corpora(min_size: int):
    """Source and target lengths of a small corpus, as two arrays."""
    return st.lists(pair_lengths, min_size=min_size, max_size=150).map(lambda pairs: np.array(pairs).T)


def sampler_of(lengths, limits: Limits, **options) -> TokenBatchSampler:
    return TokenBatchSampler(
        *lengths,
        max_source_tokens=limits.source,
        max_target_tokens=limits.target,
        max_pairs=limits.pairs,
        **options,
    )


def natural_lengths(pairs: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated lengths, spread the way those of sentences and their translations are."""
    rng = np.random.default_rng(seed)
    source = np.exp(rng.normal(2.6, 0.35, pairs)).astype(int) + 1
    target = np.maximum(source * rng.normal(1.02, 0.12, pairs) + rng.normal(0, 1, pairs), 1).astype(int) + 1
    return source, target


def assert_within(limits: Limits, lengths, batch) -> None:
    source, target = lengths
    assert len(batch) * source[batch].max() <= limits.source
    assert len(batch) * target[batch].max() <= limits.target
    assert limits.pairs is None or len(batch) <= limits.pairs


# Cutting


@given(corpora(1), limits)
@settings(max_examples=100, deadline=None)
def test_cut_is_greedy(lengths, limits):
    """The oracle adds pair after pair and opens a batch whenever the next one would not fit."""
    sizes, batch = [], []
    for source, target in lengths.T.tolist():
        grown = [*batch, (source, target)]
        longest_source, longest_target = (max(side) for side in zip(*grown, strict=True))
        if len(grown) <= limits.rows(longest_source, longest_target):
            batch = grown
        else:
            sizes.append(len(batch))
            batch = [(source, target)]
    assert cut(*lengths, limits).tolist() == [*sizes, len(batch)]


@given(st.lists(st.tuples(pair_lengths, st.integers(1, 60)), min_size=1, max_size=30), limits)
@settings(max_examples=100, deadline=None)
def test_cut_of_runs_is_cut_of_the_pairs(runs, limits):
    lengths = np.array([pair for pair, _ in runs]).T
    counts = np.array([count for _, count in runs])
    assert cut(*lengths, limits, counts).tolist() == cut(*np.repeat(lengths, counts, axis=1), limits).tolist()


def test_padding_of_a_small_example():
    padding = Padding.measure(np.array([2, 4, 5]), np.array([3, 3, 1]), np.array([2, 1]))
    assert padding == Padding(batches=2, pairs=3, source=2 / 13, target=0.0, both=2 / 20)
    assert str(padding) == "2 batches, 1.5 pairs each, 10.0% padding"


# The sampler


@given(corpora(30), limits, seeds, st.integers(0, 5), st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_every_pair_once_and_no_batch_over_its_limit(lengths, limits, seed, epoch, multiple):
    # At least two pairs to a batch, so that there is always one to halve.
    limits = Limits(2 * limits.source, 2 * limits.target, limits.pairs and limits.pairs + 1)
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
    sampler.set_epoch(4)
    following = list(sampler)
    seen = data.draw(st.integers(0, len(whole)), label="batches before the interruption")

    sampler.set_epoch(3)
    iterator = iter(sampler)
    for _ in range(seen):
        next(iterator)
    state = sampler.state_dict()

    resumed = sampler_of(lengths, limits, seed=seed)
    resumed.load_state_dict(state)
    rest = []
    for epoch in range(state["epoch"], 5):
        resumed.set_epoch(epoch)  # the loop of any training script; it must not lose the place
        rest += list(resumed)
    assert rest == whole[seen:] + following


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
    limits = Limits(4096, 4096)

    def padding(order):
        return Padding.measure(source[order], target[order], cut(source[order], target[order], limits)).both

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
    for fact in ("2 pair(s)", "64 source", "90 source", "70 target", "Raise the limit"):
        assert fact in log.out
    with pytest.raises(ValueError, match=r"1 pair\(s\) exceed the batch limit of 50 source and 64 target"):
        TokenBatchSampler([5, 60], [5, 6], max_tokens=64, max_source_tokens=50, over_limit="error")


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
        (([1], [1]), {"max_tokens": 0}, "at most 0 source tokens"),
        (([1], [1]), {"max_target_tokens": -1}, "at most -1 target tokens"),
        (([1], [1]), {"max_pairs": 0}, "at most 0 pairs"),
        (([1], [1]), {"batches_multiple_of": 0}, "batches_multiple_of is 0"),
        (([1, 1], [1, 1]), {"batches_multiple_of": 3}, "2 pairs cannot be divided into a multiple of 3"),
        (([1], [1]), {"over_limit": "drop"}, "'drop'; give 'skip' or 'error'"),
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


@given(corpora(1), limits, seeds, st.integers(2, 60))
@settings(max_examples=60, deadline=None)
def test_windows_hold_every_pair_once(lengths, limits, seed, window):
    batches = WindowedTokenBatches(
        Pairs(lengths),
        window=window,
        max_source_tokens=limits.source,
        max_target_tokens=limits.target,
        max_pairs=limits.pairs,
        seed=seed,
    )
    epoch = [[example["index"] for example in batch] for batch in batches]
    assert sorted(chain.from_iterable(epoch)) == list(range(lengths.shape[1]))
    for batch in epoch:
        assert_within(limits, lengths, batch)


@pytest.mark.parametrize(("pairs", "windows"), [(99, [99]), (100, [100]), (149, [149]), (150, [100, 50])])
def test_a_small_last_window_joins_the_one_before(pairs, windows):
    batches = WindowedTokenBatches(Pairs(natural_lengths(pairs)), window=100)
    assert [len(window) for window in batches._windows(iter(batches.stream))] == windows


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_windows_under_several_processes(processes):
    """Sharded by Accelerate itself: equally many batches to each process, every pair once, epochs passed on."""
    pairs = Pairs(natural_lengths(1010))

    def fresh(rank):
        batches = WindowedTokenBatches(pairs, window=200, max_tokens=256, batches_multiple_of=processes)
        return prepare_data_loader(
            batches.dataloader(collate), num_processes=processes, process_index=rank, dispatch_batches=False
        )

    loaders = [fresh(rank) for rank in range(processes)]
    epochs = [[indices_of(loader) for loader in loaders] for _ in range(2)]
    for ranks in epochs:
        assert len({len(batches) for batches in ranks}) == 1
        assert sorted(chain.from_iterable(chain.from_iterable(ranks))) == list(range(1010))
    assert epochs[0] != epochs[1]

    for rank in range(processes):
        resumed = fresh(rank)
        resumed.set_epoch(1)
        assert indices_of(skip_first_batches(resumed, 5)) == epochs[1][rank][5:]


def test_windows_in_loaders_of_one_process():
    batches = WindowedTokenBatches(Pairs(natural_lengths(500)), window=200, max_tokens=256)
    expected = [[example["index"] for example in batch] for batch in batches]
    assert indices_of(DataLoader(batches, batch_size=None, collate_fn=collate)) == expected
    assert indices_of(batches.dataloader(collate, num_workers=1)) == expected
    assert indices_of(Accelerator(cpu=True).prepare(batches.dataloader(collate))) == expected


def test_windows_of_a_streaming_dataset():
    pairs = Pairs(natural_lengths(300))
    stream = datasets.Dataset.from_list(list(pairs)).to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=50)
    batches = WindowedTokenBatches(stream, window=100, max_tokens=256)
    epochs = []
    for epoch in (0, 1, 0):
        batches.set_epoch(epoch)
        epochs.append([[example["index"] for example in batch] for batch in batches])
        assert sorted(chain.from_iterable(epochs[-1])) == list(range(300))
    assert stream.epoch == 0
    assert epochs[0] == epochs[2] != epochs[1]


def test_streams_report_what_they_leave_out():
    pairs = Pairs((np.array([3, 50, 3, 60]), np.array([3, 4, 3, 3])))
    batches = WindowedTokenBatches(pairs, window=10, max_tokens=40)
    with CaptureLogger(batching.logger) as log:
        assert [[example["index"] for example in batch] for batch in batches] in ([[0, 2]], [[2, 0]])
    assert batches.skipped == 2
    assert "50 source" in log.out
    assert "2 pairs of the stream" in log.out
    with pytest.raises(ValueError, match="exceed the batch limit of 40"):
        list(WindowedTokenBatches(pairs, window=10, max_tokens=40, over_limit="error"))


def test_streams_refuse_what_would_repeat_pairs():
    batches = WindowedTokenBatches(Pairs(natural_lengths(50)), window=20)
    with pytest.raises(ValueError, match="Each of the 2 loader workers"):
        list(batches.dataloader(collate, num_workers=2))
    with pytest.raises(ValueError, match="window of 5 pairs is too small for a multiple of 4"):
        WindowedTokenBatches(batches.stream, window=5, batches_multiple_of=4)
