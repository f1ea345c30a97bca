"""The fields of dataclasses as options of a command line.

The options are those of the library's `HfArgumentParser`: `--max_tokens` and `--max-tokens`, `--overwrite` with or
without a value, `--no_page` for a boolean that is on, several words for a list. Importing that class would import
transformers, which takes longer than most commands work.
"""

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


TRUE, FALSE = ("yes", "true", "t", "y", "1"), ("no", "false", "f", "n", "0")


class DataclassParser(ArgumentParser):
    """A parser with an option for each field of some dataclasses.

    Args:
        types: The dataclasses.
        options: Those of `ArgumentParser`.
    """

    def __init__(self, types: Sequence[type], **options: Any):
        super().__init__(**options)
        self.types = types
        for cls in types:
            hints = get_type_hints(cls)
            for field in fields(cls):
                if field.init:
                    self._add_field(field, hints[field.name])

    def dataclasses_of(self, values: dict[str, Any]) -> tuple[Any, ...]:
        """Returns one instance of each dataclass; `values` are those of all options."""
        return tuple(
            cls(**{field.name: values[field.name] for field in fields(cls) if field.init}) for cls in self.types
        )

    def _add_field(self, field: Field, hint: Any) -> None:
        spellings = dict.fromkeys([f"--{field.name}", f"--{field.name.replace('_', '-')}"])
        aliases = field.metadata.get("aliases", [])
        texts = {name: value for name, value in field.metadata.items() if name != "aliases"}
        self.add_argument(
            *spellings, *([aliases] if isinstance(aliases, str) else aliases), **texts, **_options_of(field, hint)
        )
        if field.default is True and _without_none(hint) is bool:
            negated = (f"--no_{field.name}", f"--no-{field.name.replace('_', '-')}")
            self.add_argument(*negated, action="store_false", dest=field.name, **texts, default=False)


def as_bool(value: str | bool) -> bool:
    """Reads a boolean as people write it."""
    if isinstance(value, bool):
        return value
    if value.lower() not in (*TRUE, *FALSE):
        raise ArgumentTypeError(f"{value!r} is neither true nor false")
    return value.lower() in TRUE


def as_bool_or_word(value: str | bool) -> str | bool:
    """Reads a boolean, or a word that the dataclass knows or refuses."""
    return as_bool(value) if isinstance(value, bool) or value.lower() in (*TRUE, *FALSE) else value


def _options_of(field: Field, hint: Any) -> dict[str, Any]:
    """The options of `add_argument` for a field of this type."""
    kind = _without_none(hint)
    origin = get_origin(kind) or kind
    default = field.default if field.default_factory is MISSING else field.default_factory()
    given: dict[str, Any] = {"required": True} if default is MISSING else {"default": default}
    if kind is bool:
        # `--overwrite` without a value is true. With a default of None, only a value says what is meant.
        is_flag = hint is bool or default not in (None, MISSING)
        flag = {"default": False if default is MISSING else default, "nargs": "?", "const": True} if is_flag else {}
        return {"type": as_bool_or_word if str in get_args(hint) else as_bool, **flag}
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        choices = get_args(kind) if origin is Literal else [choice.value for choice in kind]
        return {"type": _choice_among(choices), "choices": choices, **given}
    if isinstance(origin, type) and issubclass(origin, list):
        return {"type": get_args(kind)[0], "nargs": "+", **({} if isinstance(default, str) else given)}
    return {"type": kind, **given}


def _without_none(hint: Any) -> Any:
    """The type of a value on a command line: X of `X | None` and of `X | str`."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    first, second, *_ = get_args(hint)
    less_telling = type(None) if type(None) in get_args(hint) else str
    return first if second is less_telling else second


def _choice_among(choices: Sequence[Any]) -> Callable[[str], Any]:
    """Reads a choice that may be no string; anything else stays as it is, for the parser to refuse."""
    by_name = {str(choice): choice for choice in choices}
    return lambda word: by_name.get(word, word)
