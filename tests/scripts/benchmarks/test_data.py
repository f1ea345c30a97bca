"""Padding of every order is measured, and token batches have the least."""

import random

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark


def test_the_data_benchmark_prints_every_order_and_ours_is_best(tmp_path, capsys, rows, in_this_process):
    draw = random.Random(0)
    lengths = [draw.randint(2, 30) for _ in range(2000)]
    for language in ("en", "de"):
        lines = "".join("word " * max(1, length + draw.randint(-4, 4)) + "\n" for length in lengths)
        (tmp_path / f"train.{language}").write_text(lines)
    corpus = ["data", "--train_files", str(tmp_path / "train"), "--vocab_size", "270"]
    benchmark.main([*corpus, "--max_tokens", "512", "--pairs", "200", "--lengths", "3000"])
    printed = capsys.readouterr().out
    found = rows(printed, "random", "by source length", "by the longer side", "token batches (ours)")
    shares = {order: float(row[0].removesuffix("%")) for order, row in found.items()}
    assert min(shares, key=shares.get) == "token batches (ours)"
    assert "200 synthetic pairs read, tokenised and batched" in printed
    assert "GiB" in printed
    assert "batching 3,000 lengths" in printed
    with pytest.raises(SystemExit, match="--max_tokens 8: the longest pair has"):
        benchmark.main([*corpus, "--max_tokens", "512", "8"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["data", "--dataset", "demo", "--streaming"], "a stream cannot be reordered"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(options)
