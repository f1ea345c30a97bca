"""All systems train on the same batches, and tokens are counted without padding."""

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark
from vanilla_transformer.scripts.benchmarks import training_speed as train
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments


@pytest.mark.parametrize("order", ["bucketed", "random"])
def test_training_is_measured_beside_its_peers(text, capsys, rows, order, in_this_process, monkeypatch):
    kept = []
    monkeypatch.setattr(train, "keep_freed_memory", lambda: kept.append(True))
    sizes = ["--vocab_size", "270", "--max_tokens", "100", "--batches", "1", "--rounds", "1", "--order", order]
    benchmark.main(["train", "--train_files", text, *sizes, "--device", "cpu"])
    printed = capsys.readouterr().out
    found = rows(printed, *train.SYSTEMS)
    assert len(kept) == 2 * 2  # two systems, to warm up and in the one round
    assert found["MarianMT"][1:3] == ["1.00", "1.00-1.00"]
    assert all(float(row[0].replace(",", "")) > 0 for row in found.values())
    assert "Not measured on a GPU." in printed


def test_recurrent_models_are_measured_if_wanted(text, capsys, rows, in_this_process):
    sizes = ["--vocab_size", "270", "--max_tokens", "100", "--batches", "1", "--rounds", "1", "--device", "cpu"]
    benchmark.main(["train", "--train_files", text, *sizes, "--recurrent"])
    names = ["rnn_search, additive attention, freed memory kept", "rnn_search, fixed context, freed memory kept"]
    found = rows(capsys.readouterr().out, *names)
    assert all(float(row[0].replace(",", "")) > 0 for row in found.values())
    assert all(row[-1] == "-" for row in found.values()), "their share of the peak is not known"


def test_tokens_are_counted_without_padding(text):
    options = train.TrainBenchmarkArguments(vocab_size=270, max_tokens=100, batches=3)
    for batch in train.training_batches(
        CorpusArguments(source_lang="en", target_lang="de", train_files=[text]), options
    ):
        sides = batch["input_ids"].flatten().tolist(), batch["labels"].flatten().tolist()
        plain = sum(token != padding for side, padding in zip(sides, (0, -100), strict=True) for token in side)
        assert train.real_tokens(batch) == plain < 200


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["train", "--dataset", "demo", "--batches", "0"], "--batches 0 must be at least 1"),
        (["train", "--dataset", "demo", "--streaming"], "a stream cannot be reordered"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(options)
