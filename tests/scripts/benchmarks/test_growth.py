"""One size changes at a time, and every point is measured and drawn."""

import json

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark, growth


def test_growth_is_measured_at_every_point(tmp_path, capsys, drawn):
    grid = ["--max_tokens", "32", "64", "--lengths", "4", "8", "--layers", "1", "2", "3"]
    others = ["--at_tokens", "32", "--at_length", "4", "--rounds", "1", "--vocab_size", "50", "--device", "cpu"]
    benchmark.main(["growth", *grid, *others, "--output_dir", str(tmp_path / "growth")])
    printed = capsys.readouterr().out
    for axis, numbers in (
        ("tokens in the batch", ["32", "64"]),
        ("tokens in a sentence", ["4", "8"]),
        ("layers of each stack", ["1", "2", "3"]),
    ):
        lines = printed.partition(f"{axis}:")[2].splitlines()[2 : 2 + len(numbers)]
        assert [line.split()[0] for line in lines] == numbers
        assert all(float(figure) > 0 for line in lines for figure in line.split()[1:4])
    panels = drawn[0].axes
    assert [panel.get_xlabel() for panel in panels] == [
        "tokens in the batch",
        "tokens in a sentence",
        "layers of each stack",
    ]
    assert [list(panel.lines[0].get_xdata()) for panel in panels] == [[32, 64], [4, 8], [1, 2, 3]]
    tables = json.loads((tmp_path / "growth" / "results.json").read_text())["tables"]
    ours = [row["vanilla_transformer"] for row in tables[2]["rows"].values()]
    assert list(panels[2].lines[0].get_ydata()) == ours


def test_growth_changes_one_thing_at_a_time(monkeypatch):
    seen = []
    monkeypatch.setattr(
        growth, "cost", lambda tokens, length, fields, *rest: seen.append((tokens, length, fields)) or {}
    )
    options = growth.GrowthBenchmarkArguments(max_tokens=[256], lengths=[16], layers=[3], device="cpu")
    list(growth.measure(options))
    layers = {"encoder_layers": 3, "decoder_layers": 3}
    assert seen == [(256, 32, {}), (2048, 16, {}), (2048, 32, layers)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["growth", "--rounds", "0"], "--rounds 0 must be at least 1"),
        (["growth", "--threads", "0"], "--threads 0 must be at least 1"),
        (["growth", "--lengths", "0"], r"--lengths \[0\]: give numbers of 1 or more"),
        (["growth", "--lengths", "4096"], "A sentence of 4096 tokens does not fit in a batch of 2048"),
        (["growth", "--at_length", "600"], "A sentence of 600 tokens does not fit in a batch of 512"),
        (["growth", "--at_length", "0"], "--at_length 0 must be at least 1"),
        (["growth", "--preset", "huge"], "huge"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(options)
