"""How a model with several languages is told which: each kind of model has its own convention.

| models | the languages are |
|---|---|
| this package's, multi-target OPUS-MT | a tag in front of the text: `>>de<< Where is the station?` |
| NLLB, M2M100, mBART-50 | codes of the tokenizer; the translation starts with that of its language |
| T5 | words in front of the text: `translate English to German: ` |

A model with one direction is told nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vanilla_transformer.hub.languages import Directions, Languages, directions_of, find_language, fitting_directions
from vanilla_transformer.models.tokenization_vanilla_transformer import language_tag, language_tags

from .language_detection import AUTO, Detection, is_unchanged, languages_of_text


if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


_TAG = re.compile(r"\s*>>([a-z]{2,3}(?:[_-]\w+)?)<<\s*")


class TagError(ValueError):
    """Refusal of a text's tag: another language is given, or the model was not trained for it."""


@dataclass(frozen=True)
class Convention:
    """What a model is told about a text; here nothing.

    Args:
        directions: The directions that the model records; none if it does not say.
        targets: The languages that it can be asked for.
    """

    directions: Directions = ()
    targets: tuple[str, ...] = ()
    tells_source: ClassVar[bool] = False  # whether the model is told the source language too

    def tagged(self, text: str, languages: Languages) -> str:
        """Returns the text with what goes in front of it."""
        return text

    def set_languages(self, tokenizer: "PreTrainedTokenizerBase", languages: Languages) -> None:
        """Tells the tokenizer the languages, if it has them as a state."""

    def first_tokens(self, tokenizer: "PreTrainedTokenizerBase", languages: Languages) -> list[int]:
        """Returns the tokens that a translation starts with, after the decoder's first token."""
        return []

    def split_tag(self, text: str) -> tuple[Languages, str]:
        """Returns the languages that a text says itself, by its beginning, and the text without this beginning."""
        match = _TAG.match(text) if self.directions or self.targets else None
        return (Languages(None, match[1]), text[match.end() :]) if match else (Languages(), text)

    def untagged(
        self, text: str, given: Languages, *, zero_shot: bool = False
    ) -> tuple[str, Languages, Detection | None]:
        """Returns a text without its tag, its languages, and how the source language was found.

        A tag that contradicts the given languages is refused.

        Args:
            text: A text, with a tag in front or without.
            given: As of `resolve`; the source may be `"auto"`.
            zero_shot: As of `resolve`.
        """
        tag, untagged = self.split_tag(text)
        for side, of_tag, language in zip(("source_lang", "target_lang"), tag, given, strict=True):
            if of_tag and language not in (None, AUTO, of_tag) and self._code(of_tag) != self._code(language):
                raise TagError(
                    f"{text:.30}... asks for {of_tag!r}, and {side} is {language!r}: leave out one of them."
                )
        languages = Languages(tag.source or given.source, given.target or tag.target)
        try:
            languages, detected = languages_of_text(untagged, languages, self.directions)
            if not is_unchanged(languages):
                languages = self.resolve(languages, zero_shot=zero_shot)
            return untagged, languages, detected
        except ValueError as error:
            raise TagError(str(error)) if any(tag) else error from None

    def resolve(self, given: Languages, *, zero_shot: bool = False) -> Languages:
        """Returns the languages of a text, or refuses them.

        Args:
            given: The languages that are given; `None` for those that follow from the model.
            zero_shot: Whether the model may be asked for a direction that it was not trained on.
        """
        if not self.directions:
            source = self._code(given.source) if given.source and self.tells_source else given.source
            return Languages(source, given.target and self._code(given.target))
        fitting = fitting_directions(self.directions, given)
        targets, sources = ({each[side] for each in fitting} for side in (1, 0))
        if len(targets) == 1:
            return Languages(given.source or (sources.pop() if len(sources) == 1 else None), targets.pop())
        names = ", ".join(map(str, self.directions))
        if fitting:
            raise ValueError(f"The model translates {names}: give target_lang.")
        known = {each.target for each in self.directions}
        if zero_shot and given.target in known:
            return given
        remedy = "choose one of these"
        if given.target in known and len(self.directions) > 1:
            remedy += ", or try it with zero_shot (--zero_shot)"
        raise ValueError(f"The model was not trained for {given}, only for {names}: {remedy}.")

    def _code(self, language: str) -> str:
        """Returns the model's own name of a language, such as `de_DE` for `de`."""
        return find_language(language, self.targets) if self.targets else language


class LanguageTags(Convention):
    """A tag in front of the source text (Johnson et al. 2017)."""

    def tagged(self, text: str, languages: Languages) -> str:
        return f"{language_tag(languages.target)} {text}" if languages.target else text


class LanguageCodes(Convention):
    """Codes that the tokenizer knows; the translation starts with the token of its language."""

    tells_source = True

    def split_tag(self, text: str) -> tuple[Languages, str]:
        return Languages(), text  # `>>de<<` is text like any other

    def set_languages(self, tokenizer: "PreTrainedTokenizerBase", languages: Languages) -> None:
        if languages.source is not None:
            tokenizer.src_lang = languages.source
        if languages.target is not None:
            tokenizer.tgt_lang = languages.target

    def first_tokens(self, tokenizer: "PreTrainedTokenizerBase", languages: Languages) -> list[int]:
        if languages.target is None:
            return []
        names = getattr(tokenizer, "lang_code_to_token", {})  # M2M100 has __de__ for de
        return [tokenizer.convert_tokens_to_ids(names.get(languages.target, languages.target))]


@dataclass(frozen=True)
class TextPrefixes(Convention):
    """Words in front of the source text, from `task_specific_params` of the config.

    Args:
        words: The words of each direction.
    """

    words: tuple[tuple[Languages, str], ...] = ()

    def tagged(self, text: str, languages: Languages) -> str:
        return dict(self.words).get(languages, "") + text

    def split_tag(self, text: str) -> tuple[Languages, str]:
        start = text.lstrip()
        for languages, words in self.words:
            if start.startswith(words):
                return languages, start[len(words) :]
        return Languages(), text


def convention_of(config: "PreTrainedConfig", tokenizer: "PreTrainedTokenizerBase") -> Convention:
    """Returns the convention of a model, by its config and tokenizer."""
    directions = directions_of(config, tokenizer)
    if tags := tuple(language_tags(tokenizer)):
        return LanguageTags(directions, tags)
    if opus := _languages_of_tags(getattr(tokenizer, "supported_language_codes", ())):
        return LanguageTags(targets=opus)  # the target in the config is a family of languages, such as "roa"
    if hasattr(tokenizer, "src_lang") and hasattr(tokenizer, "tgt_lang"):
        return LanguageCodes(directions, _codes(tokenizer))
    if words := _prefixes(config):
        return TextPrefixes(tuple(languages for languages, _ in words), words=words)
    return Convention(directions)


def _languages_of_tags(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(tag[2:-2] for tag in tags)


def _codes(tokenizer: "PreTrainedTokenizerBase") -> tuple[str, ...]:
    if hasattr(tokenizer, "lang_code_to_token"):
        return tuple(tokenizer.lang_code_to_token)
    return tuple(token for token in tokenizer.all_special_tokens if re.fullmatch(r"[a-z]{2,3}_[A-Z][A-Za-z]+", token))


def _prefixes(config: "PreTrainedConfig") -> tuple[tuple[Languages, str], ...]:
    """Returns the words in front of the text for each direction of a T5."""
    tasks = getattr(config, "task_specific_params", None) or {}
    found = []
    for name, options in tasks.items():
        match = re.fullmatch(r"translation_(\w+)_to_(\w+)", name)
        if match and isinstance(options, dict) and options.get("prefix"):
            found.append((Languages(match[1], match[2]), options["prefix"]))
    return tuple(found)
