"""Options are those of the library's parser, whose import takes longer than most commands work."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import pytest
from transformers import Seq2SeqTrainingArguments
from transformers.hf_argparser import HfArgumentParser, string_to_bool

from vanilla_transformer.command_line.dataclass_parser import DataclassParser, as_bool, as_bool_or_word
from vanilla_transformer.command_line.inference_arguments import DecodingArguments, LoadingArguments
from vanilla_transformer.scripts.serve import LimitArguments, ServeArguments
from vanilla_transformer.scripts.translate import TranslateArguments
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments


class Colour(Enum):
    RED = "red"


@dataclass
class Kinds:
    needed: int
    number: float | None = None
    colour: Colour = Colour.RED
    level: Literal[1, 2, "off"] = 1
    on: bool = True
    unknown: bool | None = None
    known: bool | None = True
    files: list[str] = field(default_factory=list)
    short: str = field(default="x", metadata={"aliases": ["-s"], "help": "Short."})
    either: dict | str | None = None
    switch: bool | str = False
    derived: int = field(default=0, init=False)


COMMANDS = [Kinds, TranslateArguments, DecodingArguments, LoadingArguments, ServeArguments, LimitArguments]
NAMES = ("option_strings", "dest", "nargs", "const", "default", "help")
BOOLEANS = (string_to_bool, as_bool, as_bool_or_word)
LIBRARYS = [TranslationTrainingArguments, Seq2SeqTrainingArguments]


def described(parser) -> list[dict]:
    return [
        {
            **{name: getattr(action, name) for name in NAMES},
            **{"required": action.required, "choices": action.choices and list(action.choices)},
            "type": "bool" if action.type in BOOLEANS else "choice" if action.choices else action.type,
            "kind": type(action).__name__,
        }
        for action in parser._actions
    ]


@pytest.mark.parametrize("cls", [*COMMANDS, *LIBRARYS], ids=lambda cls: cls.__name__)
def test_the_same_options_as_the_librarys(cls):
    ours, theirs = described(DataclassParser([cls])), described(HfArgumentParser([cls]))
    assert ours == theirs


def test_values_become_a_dataclass():
    words = ["--needed", "3", "--level", "off", "--no_on", "--files", "a", "b", "-s", "y"]
    parser = DataclassParser([Kinds])
    (found,) = parser.dataclasses_of(vars(parser.parse_args(words)))
    assert found == Kinds(needed=3, level="off", on=False, files=["a", "b"], short="y")
    with pytest.raises(SystemExit):
        parser.parse_args(["--needed", "3", "--on", "perhaps"])


@pytest.mark.parametrize(("words", "expected"), [([], False), (["--switch"], True), (["--switch", "no"], False)])
def test_a_switch_may_have_a_word(words, expected):
    parser = DataclassParser([Kinds])
    assert parser.parse_args(["--needed", "3", *words]).switch is expected
    assert parser.parse_args(["--needed", "3", "--switch", "auto"]).switch == "auto"
