"""The server is measured with the offline translations as the reference."""

import time
from contextlib import nullcontext

import torch

from vanilla_transformer.scripts.benchmarks import benchmark, serving_speed
from vanilla_transformer.scripts.benchmarks.serving_speed import Run, row


def test_a_row_has_speed_latency_and_differences():
    reference = [Run(1.0, ["a", "b"]), Run(3.0, ["a", "b"])]
    runs = [Run(2.0, ["a", "b"], [0.1, 0.1]), Run(4.0, ["b", "a"], [0.1, 0.1])]
    measured = row(runs, reference)
    assert measured["sentences/s"] == 0.75
    assert (measured["to offline"], measured["spread"]) == (0.625, [0.5, 0.75])
    assert (round(measured["p50 ms"]), round(measured["p95 ms"])) == (100, 100)
    assert measured["differ"] == 2
    assert "p50 ms" not in row(reference, reference)


def test_the_picture_shows_the_ratio_that_the_spread_is_of(text, model_folder, tmp_path, monkeypatch):
    def load(address, lines, *_):
        start = time.perf_counter()
        return Run(time.perf_counter() - start, list(lines), [0.1] * len(lines))

    monkeypatch.setattr(serving_speed, "serving", lambda *_: nullcontext("no address"))
    monkeypatch.setattr(serving_speed, "load", load)
    words = ["--input", f"{text}.en", "--sentences", "3", "--rounds", "2", "--threads", str(torch.get_num_threads())]
    benchmark.main(["serve", "--model", str(model_folder), *words, "--output_dir", str(tmp_path / "kept")])
    assert (tmp_path / "kept" / "picture.png").stat().st_size > 1000
