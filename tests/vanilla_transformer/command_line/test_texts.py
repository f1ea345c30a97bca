"""A text is a text wherever it stands on a command line: no order of options and texts loses it."""

from itertools import permutations

import pytest

from vanilla_transformer.bulk_translation.workers import WorkerArguments
from vanilla_transformer.command_line.dataclass_parser import DataclassParser
from vanilla_transformer.command_line.parsing import parse_arguments
from vanilla_transformer.scripts import translate
from vanilla_transformer.scripts.translate import VALUES, DecodingArguments, LoadingArguments, TranslateArguments


TYPES = [TranslateArguments, DecodingArguments, LoadingArguments]
OPTIONS = (["--target_lang", "de", "fr"], ["--model", "everyday"], ["--scores"], ["--n_best", "2"], ["--backend=auto"])


def parsed(*words: str) -> TranslateArguments:
    return parse_arguments(TYPES, "", list(words), texts=VALUES)[0]


@pytest.mark.parametrize("text", ["I am hungry.", "-5 degrees", "--well, yes", "-5", "Hello!", "你好", "two\nlines"])
def test_no_order_of_options_loses_a_text(text):
    groups = [*OPTIONS, [text]]
    for order in permutations(groups):
        options = parsed(*(word for group in order for word in group))
        assert options.text == [text]
        assert (options.target_lang, options.model) == (["de", "fr"], ["everyday"])
        assert (options.scores, options.n_best) == (True, 2)


def test_several_texts_may_stand_in_several_places():
    options = parsed("One.", "--scores", "Two.", "--target_lang", "de", "Three.", "--", "--scores", "yes")
    assert options.text == ["One.", "Two.", "Three.", "--scores", "yes"]
    assert parsed("--text", "One.", "two", "--text=Three").text == ["One.", "two", "Three"]


@pytest.mark.parametrize(
    ("words", "corrected"),
    [
        (["--target_lang", "de", "cat"], "vanilla translate cat --target_lang de"),
        (["--model", "everyday", "Hello"], "vanilla translate Hello --model everyday"),
        (["--scores", "yes"], "vanilla translate yes --scores"),
    ],
)
def test_a_word_that_may_be_either_is_refused_with_the_corrected_command(monkeypatch, words, corrected):
    monkeypatch.setattr("vanilla_transformer.command_line.program.NAME", "vanilla translate")
    with pytest.raises(SystemExit, match=rf"may be a text or a value .*: {corrected}\."):
        translate.main(words)
    assert parsed(*corrected.split()[2:]).text == [corrected.split()[2]]


def test_a_word_is_a_value_beside_a_text_or_an_input():
    assert parsed("Hello.", "--target_lang", "deu", "fra").target_lang == ["deu", "fra"]
    assert parsed("--input", "a.txt", "--scores", "yes").scores is True
    assert parsed("--model", "seed1/model", "seed2/model", "Hello.").model == ["seed1/model", "seed2/model"]


def test_every_option_with_several_values_tells_them_from_texts():

    actions = DataclassParser([*TYPES, WorkerArguments])._actions
    assert {action.dest for action in actions if action.nargs == "+"} == {*VALUES, "text"}
