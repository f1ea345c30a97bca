"""Tables are printed, kept and drawn."""

import json

import pytest

from vanilla_transformer.scripts.benchmarks import measuring, report


TABLE = report.Table(
    "a title",
    {"tokens/s": "{:,.0f}", **measuring.RATIO},
    {"ours": {"tokens/s": 1234.5, "to MarianMT": 2.0, "spread": [1.5, 2.5]}, "theirs": {"to MarianMT": 1.0}},
    drawn=["to MarianMT"],
    reference="theirs",
    notes=["A note."],
)


def test_a_table_has_every_value_and_a_dash_for_a_missing_one():
    lines = [line.split() for line in str(TABLE).splitlines()]
    assert lines == [
        ["a", "title"],
        ["tokens/s", "to", "MarianMT", "spread"],
        ["ours", "1,234", "2.00", "1.50-2.50"],
        ["theirs", "-", "1.00", "-"],
        ["A", "note."],
    ]


def test_results_are_written_atomically_and_replaced_only_with_overwrite(tmp_path, capsys):
    folder = tmp_path / "kept"
    options = report.OutputArguments(str(folder))
    report.report(options, iter([TABLE]))
    assert f"all files are in {folder}" in capsys.readouterr().out
    assert {path.name for path in folder.iterdir()} == {"results.json", "picture.png"}
    (kept,) = json.loads((folder / "results.json").read_text())["tables"]
    assert kept["rows"] == TABLE.rows
    assert kept["notes"] == ["A note."]

    def measured_all_the_same():
        raise AssertionError("an hour is lost")
        yield

    with pytest.raises(ValueError, match="is already there"):
        report.report(options, measured_all_the_same())
    overwriting = report.OutputArguments(str(folder), overwrite=True)
    with pytest.raises(AssertionError):
        report.report(overwriting, measured_all_the_same())
    assert json.loads((folder / "results.json").read_text())["tables"] == [kept]  # the old one, whole
    report.report(overwriting, iter([TABLE, TABLE]))
    assert len(json.loads((folder / "results.json").read_text())["tables"]) == 2
    assert not [path for path in tmp_path.iterdir() if path != folder]

    (folder / "model.safetensors").touch()
    with pytest.raises(ValueError, match=r"holds model\.safetensors, no part of an older result"):
        report.report(overwriting, iter([TABLE]))


def test_bars_show_ratios_and_their_spread(tmp_path, drawn):
    report.draw_bars([TABLE], tmp_path / "picture.png")
    (axis,) = drawn[0].axes
    assert [bar.get_width() for bar in axis.patches] == [2.0, 1.0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["ours", "theirs"]
    assert [text.get_text() for text in axis.texts] == ["2.00", "1.00"]
    (whisker,) = (container[2][0].get_segments()[0] for container in axis.containers if len(container) == 3)
    assert [end[0] for end in whisker] == [1.5, 2.5]
