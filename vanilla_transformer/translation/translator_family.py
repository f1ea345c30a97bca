"""Several models behind one name: `TranslatorFamily` gives each text to the model for its direction.

    translator = Translator.from_pretrained("everyday")
    translator("Where is the station?", target_lang="fr")    # the model from English
    translator("Wo ist der Bahnhof?", target_lang="en")      # the model into English

A model is loaded when its first text comes.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count, islice
from typing import Any

from vanilla_transformer.hub.languages import (
    Directions,
    Languages,
    choose_member,
    common_languages,
    directions_of_members,
)
from vanilla_transformer.hub.process_locks import LOADING

from .language_detection import is_unchanged, languages_of_text
from .translator import Hypothesis, Request, TranslationProbability, Translator, requests_of, require_several


class TranslatorFamily(Translator):
    """A `Translator` of several models, each for directions of its own.

    Args:
        name: What the models are called together.
        load: Loads one of them, by its name.
        split_sentences: As of `Translator`.
        limits: As of `Translator`.
    """

    def __init__(
        self, name: str, load: Callable[[str], Translator], *, split_sentences: bool | str = False, **limits: Any
    ):
        self.name, self.split_sentences = name, split_sentences
        self._load = load
        self._loaded: dict[str, Translator] = {}
        self.set_limits(**limits)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_loaded": {}}  # a copy loads its own models

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(
            f"{self.name} is several models, and {name!r} belongs to one: take it with member(target_lang=...)."
        )

    def set_limits(self, **limits: Any) -> None:
        super().set_limits(**limits)
        self._limits = limits
        for member in self._loaded.values():
            member.set_limits(**limits)

    @property
    def directions(self) -> Directions:
        """The directions of all models, each once."""
        return tuple(dict.fromkeys(each for several in directions_of_members(self.name).values() for each in several))

    @property
    def languages(self) -> Languages:
        return common_languages(self.directions)

    def member(self, source_lang: str | None = None, target_lang: str | None = None) -> Translator:
        """Returns the model for these languages; one of them is enough if it decides."""
        name = choose_member(self.name, Languages(source_lang, target_lang))
        return self._loaded.get(name) or self._load_once(name)

    @LOADING
    def _load_once(self, name: str) -> Translator:
        if name not in self._loaded:
            member = self._load(name)
            member.set_limits(**self._limits)
            self._loaded[name] = member
        return self._loaded[name]

    def translate(
        self,
        texts: Iterable[str],
        *,
        source_lang: str | Iterable[str | None] | None = None,
        target_lang: str | Iterable[str | None] | None = None,
        split_sentences: bool | str | None = None,
        **options: Any,
    ) -> Iterator[list[Hypothesis]]:
        require_several(texts)
        options["split_sentences"] = self.split_sentences if split_sentences is None else split_sentences
        if isinstance(target_lang, str) and isinstance(source_lang, str | None):
            languages, _ = languages_of_text("", Languages(source_lang, target_lang), self.directions, self.name)
            choose_member(self.name, _deciding(languages))  # refuses now
        requests = requests_of(
            texts, options.pop("prefix", None), options.pop("glossary", None), source_lang, target_lang
        )
        return self._translate_each(zip(options.pop("numbers", None) or count(1), requests, strict=False), options)

    def _translate_each(
        self, numbered: Iterator[tuple[int, Request]], options: dict[str, Any]
    ) -> Iterator[list[Hypothesis]]:
        """Translates texts that have languages of their own: each model translates its texts of a window."""
        completed = ((number, self._with_languages(request)) for number, request in numbered)
        while window := list(islice(completed, self.window)):
            indices: dict[Translator, list[int]] = {}
            for index, (_, request) in enumerate(window):
                indices.setdefault(self.member(*_deciding(request.languages)), []).append(index)
            results: dict[int, list[Hypothesis]] = {}
            for member, its_indices in indices.items():
                numbers, requests = zip(*(window[index] for index in its_indices), strict=True)
                has_terms = any(request.glossary.targets for request in requests)
                translations = member.translate(
                    [request.text for request in requests],
                    prefix=[request.prefix for request in requests] if any(each.prefix for each in requests) else None,
                    glossary=[request.glossary for request in requests] if has_terms else None,
                    source_lang=[request.languages.source for request in requests],
                    target_lang=[request.languages.target for request in requests],
                    numbers=numbers,
                    **options,
                )
                results |= zip(its_indices, translations, strict=True)
            for index, (_, request) in enumerate(window):
                yield [replace(hypothesis, detected=request.detected) for hypothesis in results[index]]

    def _with_languages(self, request: Request) -> Request:
        languages, detected = languages_of_text(str(request.text), request.languages, self.directions, self.name)
        return replace(request, languages=languages, detected=detected)

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        progress: bool = False,
    ) -> Iterator[TranslationProbability]:
        member = self.member(source_lang, target_lang)
        return member.score(pairs, source_lang=source_lang, target_lang=target_lang, progress=progress)

    def attend(
        self, source: str, target: str, *, source_lang: str | None = None, target_lang: str | None = None
    ) -> Hypothesis:
        member = self.member(source_lang, target_lang)
        return member.attend(source, target, source_lang=source_lang, target_lang=target_lang)


def _deciding(languages: Languages) -> Languages:
    """The languages that decide which model translates a text; the target for a text that needs no translation."""
    return Languages(None, languages.target) if is_unchanged(languages) else languages
