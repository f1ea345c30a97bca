"""Pictures are drawn where matplotlib is installed, and left out elsewhere. Scripts have tests of what they show."""

import json
import sys

import pytest

from vanilla_transformer.training.evaluation.metrics import Bucket
from vanilla_transformer.training.reports import plots


BUCKETS = [Bucket(None, 10, 7, 31.5), Bucket(10, None, 3, 20.25)]


@pytest.fixture
def metrics(tmp_path):
    entries = [{"step": 10, "loss": 4.0, "learning_rate": 0.1}, {"step": 10, "eval_loss": 3.5, "eval_bleu": 12.0}]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return path, entries


def test_a_line_cut_by_a_crash_is_skipped_with_a_warning(metrics, monkeypatch):
    warnings: list[str] = []
    monkeypatch.setattr(plots.logger, "warning", warnings.append)
    path, entries = metrics
    with path.open("a") as file:
        file.write('{"step": 20, "lo')
    assert plots.read_metrics(path) == entries
    assert [warning.endswith("""skipped the broken line '{"step": 20, "lo'""") for warning in warnings] == [True]


def test_pictures_are_png_files(metrics, tmp_path):
    pytest.importorskip("matplotlib")
    plots.plot_learning_curve(metrics[0], tmp_path / "curve.png")
    plots.plot_bleu_by_length({"a": BUCKETS, "b": BUCKETS}, tmp_path / "bleu.png")
    for name in ("curve.png", "bleu.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_a_learning_curve_has_a_panel_for_each_thing_that_was_measured(metrics, tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")
    panels = []
    monkeypatch.setattr(
        figure.Figure, "savefig", lambda drawn, *_, **__: panels.append([axis.get_ylabel() for axis in drawn.axes])
    )
    path, entries = metrics
    plots.plot_learning_curve(path, tmp_path / "curve.png")
    path.write_text(json.dumps(entries[0]))  # a run without evaluations
    plots.plot_learning_curve(path, tmp_path / "curve.png")
    path.write_text("")
    plots.plot_learning_curve(path, tmp_path / "curve.png")
    assert panels == [["loss per token", "BLEU", "learning rate"], ["loss per token", "learning rate"]]


def test_without_matplotlib_nothing_is_drawn(metrics, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    plots.plot_learning_curve(metrics[0], tmp_path / "curve.png")
    plots.plot_bleu_by_length({"a": BUCKETS, "b": BUCKETS}, tmp_path / "bleu.png")
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_commands_that_only_draw_need_matplotlib(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install matplotlib"):
        plots.require_matplotlib()
