"""One line of scores for each pair, and the perplexity of all pairs."""

import pytest

from vanilla_transformer import Translator
from vanilla_transformer.scripts import score


SOURCES = ["The cat sleeps.", "", "   ", "A dog runs in the garden."]
TARGETS = ["Eine Katze", "", "Hund", "x"]


@pytest.fixture
def files(tmp_path):
    for language, lines in [("en", SOURCES), ("de", TARGETS)]:
        (tmp_path / f"test.{language}").write_text("".join(f"{line}\n" for line in lines))
    return str(tmp_path / "test")


def test_each_pair_has_a_line_of_scores(model_folder, files, capsys):
    score.main(["--model", str(model_folder), "--files", files, "--device", "cpu"])
    printed = capsys.readouterr()
    rows = [[float(cell) for cell in line.split("\t")] for line in printed.out.splitlines()]
    translator = Translator.from_pretrained(model_folder, backend="torch", device="cpu")
    scores = translator.score(zip(SOURCES, TARGETS, strict=True))
    for row, expected in zip(rows, scores, strict=True):
        assert row == pytest.approx([expected.log_probability, expected.tokens, expected.perplexity], abs=1e-3)
    assert f"over {sum(int(row[1]) for row in rows)} tokens" in printed.err


def test_scores_go_to_a_file_that_is_replaced_only_with_overwrite(model_folder, files, tmp_path, capsys):
    command = ["--model", str(model_folder), "--files", files, "--device", "cpu"]
    score.main(command)
    expected = capsys.readouterr().out
    output = tmp_path / "scores.tsv"
    score.main([*command, "--output", str(output)])
    assert output.read_text() == expected
    with pytest.raises(SystemExit, match="--overwrite"):
        score.main([*command, "--output", str(output)])
    score.main([*command, "--output", str(output), "--overwrite"])
    assert output.read_text() == expected


def test_pairs_must_be_given(model_folder):
    with pytest.raises(SystemExit, match="set --files"):
        score.main(["--model", str(model_folder)])


def test_languages_are_those_of_the_model(model_folder, files):
    with pytest.raises(SystemExit, match=r"target_lang is 'fr', but .* translates en-de"):
        score.main(["--model", str(model_folder), "--files", files, "--target_lang", "fr"])
