"""The languages of a model: the directions in which it translates, each from one language into another.

Training and conversion record them in the model's config, in the spelling of the corpus (`"en"`): a single direction
as `source_lang` and `target_lang`, several as `directions` (`["en-de", "de-en"]`). The tokenizers of OPUS-MT models
have fields `source_lang` and `target_lang` too, which are read if the config has none.
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .saved_files import errors_in_one_sentence, find_file, members_of, read_config


if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


class Languages(NamedTuple):
    """Source and target language; `None` if it is not known."""

    source: str | None = None
    target: str | None = None

    def __str__(self) -> str:
        return f"{self.source or '?'}-{self.target or '?'}"

    def __bool__(self) -> bool:
        """Whether both are known."""
        return None not in self

    @classmethod
    def parse(cls, direction: str) -> "Languages":
        """Returns the languages of a direction such as `"en-de"`."""
        words = str(direction).split("-")
        if len(words) != 2 or not all(words) or words[0] == words[1]:
            raise ValueError(
                f"{direction!r} is not a direction: write two languages as in en-de. A code that has a hyphen is "
                "written with an underscore, as in en-zh_CN."
            )
        return cls(*words)


FIELDS = ("source_lang", "target_lang")  # of a config and of a tokenizer, in the order of `Languages`
DIRECTIONS = "directions"  # of the config of a model with several
Directions = tuple[Languages, ...]
# Names of languages, for people. Others are shown by their code.
LANGUAGE_NAMES = {
    **{"ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "en": "English", "es": "Spanish"},
    **{"fi": "Finnish", "fr": "French", "hi": "Hindi", "hu": "Hungarian", "it": "Italian", "ja": "Japanese"},
    **{"ko": "Korean", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian"},
    **{"ru": "Russian", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese"},
}
LANGUAGE_NAMED = {name.lower(): code for code, name in LANGUAGE_NAMES.items()}
MOST_SHOWN = 20  # languages in a message


def languages_of(config: "PreTrainedConfig", tokenizer: "PreTrainedTokenizerBase | None" = None) -> Languages:
    """Returns the languages that a config records, or else its tokenizer.

    A model with several directions has a source language if they all share it, and so for the target.

    Args:
        config: The config of any model.
        tokenizer: The tokenizer that belongs to it.
    """
    if several := _several(config):
        return common_languages(several)
    return _recorded(vars(config)) or _recorded(getattr(tokenizer, "init_kwargs", {}))


def directions_of(config: "PreTrainedConfig", tokenizer: "PreTrainedTokenizerBase | None" = None) -> Directions:
    """Returns the directions that a config records, or else its tokenizer; none if they are not known."""
    if several := _several(config):
        return several
    languages = languages_of(config, tokenizer)
    return (languages,) if languages else ()


def common_languages(directions: Sequence[Languages]) -> Languages:
    """Returns the source language that all directions share, and the target language; `None` where they differ."""
    sides = zip(*directions, strict=True)
    return Languages(*(side[0] if len(set(side)) == 1 else None for side in sides))


def load_languages(name_or_path: str | Path, **options: Any) -> Languages:
    """Returns the languages of a model in a folder or on the Hub, without loading its weights.

    Args:
        name_or_path: Folder, or name on the Hub.
        options: Options of `from_pretrained` such as `revision`.
    """
    languages = languages_of(read_config(name_or_path, **options))
    if languages:
        return languages
    path = find_file(name_or_path, "tokenizer_config.json", required=False, **options)
    with errors_in_one_sentence(name_or_path):
        return Languages() if path is None else _recorded(json.loads(Path(path).read_text(encoding="utf-8")))


def load_directions(name_or_path: str | Path, **options: Any) -> Directions:
    """Returns the directions of a model as `load_languages` returns its languages."""
    if several := _several(read_config(name_or_path, **options)):
        return several
    languages = load_languages(name_or_path, **options)
    return (languages,) if languages else ()


@cache
def directions_of_members(family: str) -> dict[str, Directions]:
    """Returns the directions of each model of a family."""
    return {name: directions_of(read_config(name)) for name in members_of(family)}


def choose_member(family: str, given: Languages) -> str:
    """Returns the model of a family for the given languages, of which one is enough if it decides.

    Args:
        family: The name of the family.
        given: The languages; `None` for one that is not given.
    """
    members = directions_of_members(family)
    known = [direction for directions in members.values() for direction in directions]
    given = known_languages(known, given, family)
    fitting = fitting_directions(known, given)
    names = [name for name, directions in members.items() if set(directions) & set(fitting)]
    if len(names) == 1:
        return names[0]
    shown = ", ".join(map(str, known))
    if names:
        raise ValueError(f"{family} translates {shown}: give target_lang (--target_lang).")
    raise ValueError(f"{family} was not trained for {given}, only for {shown}: choose one of these.")


def record_languages(config: "PreTrainedConfig", languages: Languages) -> None:
    """Writes languages into the config of any model, as far as they are known."""
    for name, language in zip(FIELDS, languages, strict=True):
        if language is not None:
            setattr(config, name, language)


def record_directions(config: "PreTrainedConfig", directions: Sequence[Languages]) -> None:
    """Writes the directions of a model into its config, in place of those that are there."""
    if len(directions) == 1:
        vars(config).pop(DIRECTIONS, None)
        record_languages(config, directions[0])
        return
    setattr(config, DIRECTIONS, list(map(str, directions)))
    for name in FIELDS:
        if getattr(config, name, None) is not None:
            setattr(config, name, None)


def fitting_directions(directions: Iterable[Languages], given: Languages) -> list[Languages]:
    """Returns the directions that have the given languages: in the same spelling or, if there is none, in another."""
    known = list(directions)
    exact = [each for each in known if all(one in (None, of) for one, of in zip(given, each, strict=True))]
    return exact or [
        each for each in known if not any(one and differ(one, str(of)) for one, of in zip(given, each, strict=True))
    ]


def find_direction(directions: Iterable[Languages], given: Languages, model: str | Path) -> Languages:
    """Returns the one direction that has the given languages.

    Args:
        directions: The directions of a model.
        given: The languages that are given; `None` for one that follows from the others.
        model: The model's name, for the message.
    """
    known = list(directions)
    fitting = fitting_directions(known, known_languages(known, given, model))
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(map(str, known))
    if fitting:
        unclear = [name for name, side in zip(FIELDS, zip(*fitting, strict=True), strict=True) if len(set(side)) > 1]
        raise ValueError(f"{model} translates {names}: give {' and '.join(unclear)}.")
    raise ValueError(f"{model} was not trained for {given}, only for {names}: choose one of these.")


def agreed_languages(given: Languages, recorded: Languages, model: str | Path) -> Languages:
    """Returns the languages that are given, or else those of the model. Refuses a contradiction between them.

    Args:
        given: The options `source_lang` and `target_lang`.
        recorded: The languages of the model.
        model: Its name, for the message.
    """
    for name, option, language in zip(FIELDS, given, recorded, strict=True):
        if option is not None and language is not None and differ(option, language):
            raise ValueError(
                f"{name} is {option!r}, but {model} translates {recorded}: leave out {name}, or choose a model for "
                "that language."
            )
    return Languages(*(option or language for option, language in zip(given, recorded, strict=True)))


def known_languages(directions: Iterable[Languages], given: Languages, model: str | Path = "the model") -> Languages:
    """Returns the given languages in a model's own spelling, and refuses others.

    Args:
        directions: The directions of the model.
        given: The languages that are given.
        model: The model's name, for the message.
    """
    known = list(dict.fromkeys(str(language) for direction in directions for language in direction))

    def spelled(language: str | None) -> str | None:
        # "en" can't be compared with the languages of a model from "eng" into "deu".
        of_another_kind = len(known) == 2 and all(not differ(code, language) for code in known if language)
        if language is None or (of_another_kind and language.lower() not in LANGUAGE_NAMED):
            return language
        return find_language(language, known, model)

    return Languages(*map(spelled, given))


def find_language(name: str, known: Sequence[str], model: str | Path = "the model") -> str:
    """Returns a model's own spelling of a language: `"zh"` for `"zh-CN"` or `"zh-Hans"`. Refuses other languages.

    Args:
        name: The language that is given.
        known: The languages of the model.
        model: Its name, for the message.
    """
    if name in known:
        return name
    same = [code for code in known if base_of(code) == base_of(name)]
    if len(same) == 1:
        return same[0]
    meant = LANGUAGE_NAMED.get(name.lower())
    hint = "".join(f" (did you mean {code!r}?)" for code in known if base_of(code) == meant)
    shown = ", ".join((same or known)[:MOST_SHOWN]) + (" and others" if len(same or known) > MOST_SHOWN else "")
    raise ValueError(f"{name!r} is not a language of {model}{hint}: choose one of {shown}.")


def base_of(language: str) -> str:
    """Returns the name of a language without region and script: `"zh"` of `"zh-Hans"`."""
    return re.split("[-_]", language)[0].lower()


def differ(language: str, other: str) -> bool:
    """Whether two names are certainly those of different languages.

    Regions and scripts do not count, as in `"de"` and `"de_AT"`. Names of different kinds, such as `"de"` and `"deu"`
    or `"german"`, can't be compared.
    """
    first, second = base_of(language), base_of(other)
    return first != second and min(len(first), 4) == min(len(second), 4)


def _several(config: "PreTrainedConfig") -> Directions:
    recorded = getattr(config, DIRECTIONS, None)
    return tuple(map(Languages.parse, recorded)) if isinstance(recorded, list) else ()


def _recorded(fields: dict[str, Any]) -> Languages:
    values = (fields.get(name) for name in FIELDS)
    return Languages(*(value if isinstance(value, str) and value else None for value in values))
