"""The command: topics by name, their help, their files."""

import json

import pytest

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain import explain
from vanilla_transformer.scripts.explain.explanation import Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture


@pytest.fixture
def two_topics(monkeypatch):
    """Replaces the topics by two that do nothing but count."""
    calls = []

    def topic(name):
        def run(options):
            """Says one."""
            calls.append((name, options.updates))
            panel = Curves("one", "x", "y", [1, 2], {"line": [1.0, 2.0]})
            return Explanation([Table("one", {"y": "{:.1f}"}, {"row": {"y": 1.0}})], [Picture("one", [[panel]])])

        return run

    monkeypatch.setattr(explain, "TOPICS", {"first": topic("first"), "second": topic("second")})
    return calls


def test_all_runs_every_topic_and_keeps_pictures_and_figures(two_topics, tmp_path, capsys):
    explain.main(["all", "--output_dir", str(tmp_path), "--updates", "7"])
    assert two_topics == [("first", 7), ("second", 7)]
    assert (tmp_path / "second.png").read_bytes().startswith(b"\x89PNG")
    kept = json.loads((tmp_path / "first.json").read_text())
    assert kept["tables"][0]["rows"] == {"row": {"y": 1.0}}
    assert str(tmp_path) not in (tmp_path / "first.json").read_text()  # no path of this machine
    assert "row  1.0" in capsys.readouterr().out


def test_existing_pictures_are_kept_unless_they_may_be_replaced(two_topics, tmp_path):
    explain.main(["first", "--output_dir", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"first\.png, .*first\.json exists: add --overwrite, or choose another"):
        explain.main(["all", "--output_dir", str(tmp_path)])
    explain.main(["first", "--output_dir", str(tmp_path), "--overwrite"])
    assert [name for name, _ in two_topics] == ["first", "first"]


def test_the_help_lists_every_topic_with_a_sentence(capsys):
    explain.main(["--help"])
    printed = capsys.readouterr().out
    for name, topic in explain.TOPICS.items():
        assert f"    {name}  " in printed
        assert topic.__doc__.splitlines()[0].rstrip("*").rstrip().endswith(".")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["scalling"], "There is no topic 'scalling' .did you mean 'scaling'"),
        (["scaling", "--updates", "0"], "--updates 0 must be at least 1"),
    ],
)
def test_mistakes_get_a_sentence(words, sentence):
    with pytest.raises(SystemExit, match=sentence):
        explain.main(words)
