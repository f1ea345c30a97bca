"""A pattern is measured at every length, and full attention up to a limit."""

import json
import math

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark, growth, pattern_growth


def test_a_pattern_is_measured_beside_full_attention(tmp_path, drawn, in_this_process, monkeypatch):
    # In a process whose memory other tests have used, a small model needs no more.
    monkeypatch.setattr(pattern_growth, "peak_of_pass", lambda *arguments: 2**20)
    sizes = ["--lengths", "32", "64", "--full_up_to", "32", "--attention_window", "8", "--vocab_size", "50"]
    options = [*sizes, "--rounds", "1", "--device", "cpu", "--output_dir", str(tmp_path / "growth")]
    benchmark.main(["growth", "--attention_pattern", "window", *options])
    (table,) = json.loads((tmp_path / "growth" / "results.json").read_text())["tables"]
    names = {"window", "full, SDPA", "full, eager"}
    assert {name for name in names if table["rows"]["32"][f"{name}, ms"] > 0} == names
    assert "times as fast" in table["rows"]["32"]
    assert table["rows"]["64"].keys() == {"window, ms", "window, MiB"}
    (axis,) = drawn[0].axes
    curves = {line.get_label(): list(line.get_ydata()) for line in axis.lines}
    assert len(curves) == 3
    assert math.isnan(curves["full, SDPA, ms"][1])
    assert curves["window, ms"][1] > 0


@pytest.mark.parametrize("pattern", ["longformer", "lsh"])
def test_every_pattern_makes_its_systems(pattern):
    options = growth.GrowthBenchmarkArguments(attention_pattern=pattern, lengths=[32])
    systems = pattern_growth.configurations(32, options)
    assert [config.attention_pattern for config in systems.values()] == [pattern, "full", "full"]
    assert growth.GrowthBenchmarkArguments(attention_pattern=pattern).lengths == [2048, 4096, 8192, 16384, 32768]


def test_an_unknown_pattern_gets_a_sentence():
    with pytest.raises(SystemExit, match="--attention_pattern widow is unknown: choose one of full, window"):
        benchmark.main(["growth", "--attention_pattern", "widow"])
