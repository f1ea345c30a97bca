"""The table and the page of the iterations are what the search did."""

import json
import re

import pytest

from vanilla_transformer import Translator
from vanilla_transformer.scripts import show_iterations
from vanilla_transformer.scripts.show_iterations import render_page
from vanilla_transformer.training.reports.mask_predict_iterations import Frame, Iterations, iterations_of, readable


TEXT = "A dog runs in the garden."


def test_the_last_frame_is_the_translation(mask_model_folder):
    translator = Translator.from_pretrained(mask_model_folder)
    options = {"iterations": 4, "length_candidates": 2, "length_ratio": 0.7}
    shown = iterations_of(translator, TEXT, **options)
    (expected,) = next(translator.translate([TEXT], **options))
    assert (shown.source, shown.translation) == (TEXT, expected.text)
    assert shown.score == pytest.approx(expected.score)
    length = len(shown.frames[0].tokens)
    assert [sum(frame.masked) for frame in shown.frames] == [length * (4 - t) // 4 for t in range(4)]
    assert all(0 < p <= 1 for frame in shown.frames for p in frame.probabilities)


def test_the_table_marks_what_an_iteration_predicted():
    first = Frame(("▁ein", "▁Hund", "▁Hund"), (True, True, True), (0.9, 0.6, 0.2))
    second = Frame(("▁ein", "▁Hund", "▁läuft"), (False, False, True), (0.9, 0.6, 0.5))
    assert (first.repeated, second.repeated) == ((2,), ())
    table = readable(Iterations("a dog runs", "ein Hund läuft", -0.4, (first, second)))
    assert table.splitlines()[2:5] == [
        "iteration  masked  1       2        3",
        "1          3       [▁ein]  [▁Hund]  [▁Hund]",
        "2          1       ▁ein    ▁Hund    [▁läuft]",
    ]
    assert table.endswith("mean log-probability -0.400, tokens that repeat the one before: 0")


def test_tokens_and_texts_of_the_page_stay_text():
    frame = Frame(("</script><script>alert(1)</script>", "@source@"), (True, False), (0.5, 0.25))
    page = render_page(Iterations("<b>@data@</b>", "@source@ & more", -1.0, (frame,)))
    assert page.count("<script") == 2
    assert "&lt;b&gt;@data@&lt;/b&gt; → @source@ &amp; more" in page
    (data,) = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])["frames"]
    assert data == {"tokens": list(frame.tokens), "masked": [True, False], "probabilities": [0.5, 0.25]}


def test_the_command_prints_the_table_and_writes_the_page(mask_model_folder, tmp_path, capsys):
    folder = tmp_path / "page"
    command = ["--model", str(mask_model_folder), "--text", TEXT, "--iterations", "3", "--output_dir", str(folder)]
    show_iterations.main(command)
    printed = capsys.readouterr().out
    assert printed.startswith(f"{TEXT}\n\niteration  masked  1")
    assert printed.endswith(f"{folder / 'iterations.html'}\n")
    assert TEXT in (folder / "iterations.html").read_text()
    with pytest.raises(SystemExit, match="overwrite"):
        show_iterations.main(command)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--iterations", "0"], "iterations=0 must be a whole number of 1 or more"),
        (["--text", " "], "The text is empty: give a sentence"),
    ],
)
def test_mistakes_get_a_sentence(mask_model_folder, options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        show_iterations.main(["--model", str(mask_model_folder), *options])


def test_a_model_without_iterations_is_refused(model_folder):
    with pytest.raises(SystemExit, match="writes one token after another and has no iterations"):
        show_iterations.main(["--model", str(model_folder), "--text", TEXT])
