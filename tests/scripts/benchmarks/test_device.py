"""The tables of `vanilla benchmark device` for a small model."""

import pytest

from vanilla_transformer.scripts.benchmarks import device
from vanilla_transformer.scripts.benchmarks.peers import configuration


OPTIONS = device.DeviceBenchmarkArguments(preset="tiny", vocab_size=200, rows=20, length=5)


def test_an_update_has_fewer_waits_than_marians():
    rows = device.count_updates(configuration("tiny", 200), OPTIONS, "small").rows
    ours, marian = rows[device.OURS], rows[device.MARIAN]
    assert ours["waits"] == 0 < marian["waits"]
    assert ours["TFLOP"] == pytest.approx(marian["TFLOP"], rel=0.01)
    assert rows[f"{device.OURS}, loss alone"]["kernels"] < ours["kernels"]


def test_a_step_waits_once():
    rows = device.count_searches().rows
    assert set(rows[device.OURS].values()) == {1.0}
    assert min(rows[device.MARIAN].values()) > 1


@pytest.mark.slow
def test_the_whole_command(capsys):
    device.main(["--preset", "tiny", "--vocab_size", "2000", "--rows", "200", "--length", "8"])
    printed = capsys.readouterr().out
    assert "with torch.compile" in printed
    assert "waits per step" in printed


def test_mistakes_get_a_sentence():
    with pytest.raises(ValueError, match="--rows 1 must be at least 2"):
        device.DeviceBenchmarkArguments(rows=1)
