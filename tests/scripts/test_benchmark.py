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
    assert "vanilla-benchmark {data}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no benchmark 'speed': choose one of data"):
        benchmark.main(["speed"])
