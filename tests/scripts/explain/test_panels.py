"""Pictures name their axes and have few kilobytes."""

import numpy as np
from matplotlib.figure import Figure

from vanilla_transformer.scripts.explain.panels import Columns, Curves, HeatMap, Picture


def test_pictures_have_named_axes_and_few_kilobytes(tmp_path, monkeypatch):
    figures, save = [], Figure.savefig

    def remember(figure, *args, **options):
        figures.append(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", remember)
    heat = HeatMap("map", "columns", "rows", np.eye(3), "weight", ticks=("abc", "def"))
    bars = Columns("bars", "groups", "BLEU", {"a": {"x": 1.0, "y": 2.0}, "b": {"x": 3.0, "y": 4.0}})
    lines = Curves("lines", "n", "ms", {"p": [1, 2], "q": [1]}, {"p": [1.0, 4.0], "q": [2.0]}, log="xy", dots=["q"])
    Picture("all", [[heat, bars], [lines]]).save(tmp_path / "all.png")
    axes = [axis for axis in figures[0].findobj(lambda part: hasattr(part, "get_xlabel")) if axis.get_xlabel()]
    labels = {(axis.get_xlabel(), axis.get_ylabel()) for axis in axes}
    assert labels == {("columns", "rows"), ("groups", "BLEU"), ("n", "ms")}
    assert (tmp_path / "all.png").stat().st_size < 80_000
