"""Several evaluations in one table and one picture, and refusals of what can't be compared."""

import json

import pytest
from matplotlib.figure import Figure

from vanilla_transformer.scripts import compare_evaluations


def write(folder, bleu: float, by_length: list[float], bound: int = 10) -> str:
    folder.mkdir()
    ranges = [(None, bound, 7), (bound, None, 3)]
    buckets = [
        {"above": above, "up_to": up_to, "sentences": number, "sacrebleu": score}
        for (above, up_to, number), score in zip(ranges, by_length, strict=True)
    ]
    results = {"sacrebleu": {"score": bleu, "signature": "x"}, "sentences": 10, "by_source_length": buckets}
    (folder / "results.json").write_text(json.dumps(results))
    return str(folder)


@pytest.fixture
def folders(tmp_path):
    return [write(tmp_path / "one", 30.125, [32.0, 20.0]), write(tmp_path / "two", 35.5, [36.0, 34.5])]


def test_all_scores_are_in_the_table_and_the_picture(folders, tmp_path, capsys, monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: figures.append(figure))
    output = tmp_path / "out"
    compare_evaluations.main(["--evaluations", *folders, "--names", "RNN", "Attention", "--output_dir", str(output)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["sacrebleu", "≤", "10", "words", ">", "10", "words"]
    assert [line.split() for line in lines[1:3]] == [
        ["RNN", "30.12", "32.0", "20.0"],
        ["Attention", "35.50", "36.0", "34.5"],
    ]
    assert (output / "comparison.md").read_text().splitlines()[2] == "| RNN | 30.12 | 32.0 | 20.0 |"
    (axis,) = figures[0].axes
    assert [bar.get_height() for bar in axis.patches] == [32.0, 20.0, 36.0, 34.5]
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["RNN", "Attention"]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["≤ 10\n7 sent.", "> 10\n3 sent."]


def test_mistakes_get_a_sentence(folders, tmp_path):
    other = write(tmp_path / "other", 1.0, [1.0, 1.0], bound=20)
    for arguments, sentence in [
        ([], "Give --evaluations"),
        (["--evaluations", str(tmp_path)], "has no results.json"),
        (["--evaluations", *folders, "--names", "a"], "gives 1 names for 2 evaluations"),
        (["--evaluations", *folders, "--names", "a", "a"], "repeats a name"),
        (["--evaluations", folders[0], other], "with other --length_bounds"),
    ]:
        with pytest.raises(SystemExit, match=sentence):
            compare_evaluations.main([*arguments, "--output_dir", str(tmp_path / "out")])
