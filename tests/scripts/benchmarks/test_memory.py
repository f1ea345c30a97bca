"""Memory is that of training alone."""

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark, measuring, peers


@pytest.mark.slow
def test_memory_is_measured_in_fresh_processes(capsys, rows, monkeypatch):
    """The memory of this process does not count: getrusage would include it."""
    held = b"x" * 2**30
    monkeypatch.delitem(peers.MODELS, "torch.nn.Transformer")
    benchmark.main(["memory", "--preset", "tiny", "--vocab_size", "30000", "--max_tokens", "1024", "--device", "cpu"])
    found = rows(capsys.readouterr().out, "vanilla_transformer", "MarianMT")
    assert float(found["vanilla_transformer"][-1]) < float(found["MarianMT"][-1]) == 1.0
    config = peers.configuration("tiny", 30000)
    model, _ = peers.our_model(config)
    with_moments = 4 * 4 * model.num_parameters() / 2**20  # weights, gradients and two moments, four bytes each
    assert with_moments < float(found["vanilla_transformer"][0]) < len(held) / 2**20 < measuring.peak_memory() / 2**20


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["memory", "--length", "0"], "--length 0 must lie between 1 and --max_tokens 4096"),
        (["memory", "--length", "64", "--max_tokens", "10"], "--length 64 must lie between 1 and --max_tokens 10"),
        (["memory", "--device", "abacus"], "'abacus' is unknown to torch"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(options)
