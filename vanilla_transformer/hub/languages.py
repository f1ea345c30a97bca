"""The languages of a model: the one it reads and the one it writes.

Training and conversion record them in the model's config as `source_lang` and `target_lang`, in the spelling of the
corpus (`"en"`). The tokenizers of OPUS-MT models have fields of the same names, which are read if the config has none.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import cached_file

from .loading import errors_in_one_sentence, find_model, load_config


class Languages(NamedTuple):
    """Source and target language; `None` if it is not known."""

    source: str | None = None
    target: str | None = None

    def __str__(self) -> str:
        return f"{self.source or '?'}-{self.target or '?'}"

    def __bool__(self) -> bool:
        """Whether both are known."""
        return None not in self


FIELDS = ("source_lang", "target_lang")  # of a config and of a tokenizer, in the order of `Languages`


def languages_of(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase | None = None) -> Languages:
    """Returns the languages that a config records, or else its tokenizer.

    Args:
        config: The config of any model.
        tokenizer: The tokenizer that belongs to it.
    """
    return _recorded(vars(config)) or _recorded(getattr(tokenizer, "init_kwargs", {}))


def load_languages(name_or_path: str | Path, **options: Any) -> Languages:
    """Returns the languages of a model in a folder or on the Hub, without loading its weights.

    Args:
        name_or_path: Folder, or name on the Hub.
        options: Options of `from_pretrained` such as `revision`.
    """
    name_or_path = find_model(name_or_path)
    languages = languages_of(load_config(name_or_path, **options))
    if languages:
        return languages
    options.pop("trust_remote_code", None)  # a JSON file runs no code
    with errors_in_one_sentence(name_or_path):
        path = cached_file(
            name_or_path, "tokenizer_config.json", _raise_exceptions_for_missing_entries=False, **options
        )
        return Languages() if path is None else _recorded(json.loads(Path(path).read_text(encoding="utf-8")))


def record_languages(config: PreTrainedConfig, languages: Languages) -> None:
    """Writes languages into the config of any model, as far as they are known."""
    for name, language in zip(FIELDS, languages, strict=True):
        if language is not None:
            setattr(config, name, language)


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


def differ(language: str, other: str) -> bool:
    """Whether two names are certainly those of different languages.

    Regions and scripts do not count, as in `"de"` and `"de_AT"`. Names of different kinds, such as `"de"` and `"deu"`
    or `"german"`, can't be compared.
    """
    first, second = (re.split("[-_]", name)[0].lower() for name in (language, other))
    return first != second and min(len(first), 4) == min(len(second), 4)


def _recorded(fields: dict[str, Any]) -> Languages:
    values = (fields.get(name) for name in FIELDS)
    return Languages(*(value if isinstance(value, str) and value else None for value in values))
