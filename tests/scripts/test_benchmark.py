import random

import pytest

from vanilla_transformer.scripts import benchmark


def test_the_data_benchmark_prints_every_order_and_ours_is_best(tmp_path, capsys):
    draw = random.Random(0)
    lengths = [draw.randint(2, 30) for _ in range(2000)]
    for language in ("en", "de"):
        lines = "".join("word " * max(1, length + draw.randint(-4, 4)) + "\n" for length in lengths)
        (tmp_path / f"train.{language}").write_text(lines)
    options = ["--vocab_size", "270", "--max_tokens", "512", "--pairs", "200", "--lengths", "3000"]
    benchmark.main(["data", "--train_files", str(tmp_path / "train"), *options])
    printed = capsys.readouterr().out
    shares = {}
    for order in ("random", "by source length", "by the longer side", "token batches (ours)"):
        line = next(line for line in printed.splitlines() if line.startswith(order))
        shares[order] = float(line.removeprefix(order).strip().removesuffix("%"))
    assert min(shares, key=shares.get) == "token batches (ours)"
    assert "200 synthetic pairs read, tokenised and batched" in printed
    assert "peak memory" in printed
    assert "batching 3,000 lengths" in printed


def test_help_and_an_unknown_name(capsys):
    benchmark.main(["--help"])
    assert "vanilla-benchmark {data,train,memory,decode}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no benchmark 'speed': choose one of data, train"):
        benchmark.main(["speed"])


@pytest.fixture
def text(tmp_path):
    draw = random.Random(0)
    for language in ("en", "de"):
        lines = [" ".join(draw.choice("abcdefgh") for _ in range(draw.randint(2, 9))) for _ in range(80)]
        (tmp_path / f"train.{language}").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "train")


def rows(printed: str, *names: str) -> dict[str, list[str]]:
    lines = {name: next(line for line in printed.splitlines() if line.startswith(name)) for name in names}
    return {name: line.removeprefix(name).split() for name, line in lines.items()}


@pytest.mark.parametrize("order", ["bucketed", "random"])
def test_training_is_measured_beside_its_peers(text, capsys, order):
    sizes = ["--vocab_size", "270", "--max_tokens", "100", "--batches", "1", "--rounds", "1", "--order", order]
    benchmark.main(["train", "--train_files", text, *sizes])
    found = rows(capsys.readouterr().out, "vanilla_transformer", "MarianMT", "torch.nn.Transformer")
    assert found["MarianMT"][1] == "1.00"
    assert all(float(row[0].replace(",", "")) > 0 for row in found.values())


def test_all_learners_start_from_the_same_loss(text):
    """They are the same network: dropout aside, MarianMT with the same weights has the same loss."""
    import torch

    from vanilla_transformer.scripts.peers import LEARNERS, configuration
    from vanilla_transformer.training.arguments import CorpusArguments

    options = benchmark.TrainBenchmarkArguments(vocab_size=270, max_tokens=100, batches=1)
    (batch,) = benchmark.training_batches(CorpusArguments(train_files=[text]), options)
    config = configuration("tiny", 270)
    config.dropout = 0.0
    losses = {}
    for name, make in LEARNERS.items():
        torch.manual_seed(0)
        losses[name] = make(config)(batch)
    # The two definitions of smoothing differ by a hair.
    assert losses["MarianMT"] == pytest.approx(losses["vanilla_transformer"], rel=0.01)
    assert losses["torch.nn.Transformer"] == pytest.approx(losses["vanilla_transformer"], rel=0.3)


def test_memory_is_measured_in_fresh_processes(capsys):
    benchmark.main(["memory", "--preset", "tiny", "--vocab_size", "30000", "--max_tokens", "2048"])
    found = rows(capsys.readouterr().out, "vanilla_transformer", "MarianMT", "torch.nn.Transformer")
    assert float(found["vanilla_transformer"][-1]) < float(found["MarianMT"][-1]) == 1.0


def test_decoding_is_measured_with_the_same_weights(text, model_folder, capsys):
    sizes = ["--input", f"{text}.en", "--sentences", "5", "--rounds", "1", "--num_beams", "2"]
    benchmark.main(["decode", "--preset", "tiny", "--vocab_size", "270", "--length", "3", *sizes])
    systems = ["MarianMT generate", "this model, beam_search", "Translator", "this model, stock generate"]
    assert rows(capsys.readouterr().out, *systems)["MarianMT generate"][1] == "1.00"
    benchmark.main(["decode", "--model", str(model_folder), *sizes])
    assert str(model_folder) in capsys.readouterr().out
    with pytest.raises(SystemExit, match="Give either --model or --preset"):
        benchmark.main(["decode", *sizes])
