"""The models that a server offers, by name and by language."""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from vanilla_transformer.hub.installed import missing_for_torch
from vanilla_transformer.hub.languages import Languages, agreed_languages
from vanilla_transformer.hub.saved_files import read_card
from vanilla_transformer.models.searches import options_of
from vanilla_transformer.translation.attention_maps import MAX_TOKENS
from vanilla_transformer.translation.confidence import CALIBRATION
from vanilla_transformer.translation.language_conventions import TagError
from vanilla_transformer.translation.language_detection import Detection, detect, is_unchanged, languages_of_text
from vanilla_transformer.translation.translator import Hypothesis, Translator
from vanilla_transformer.translation.words import WordAttention, word_attention

from .access_limits import Limits
from .batching import Batching, BatchingTranslator
from .errors import RequestError, shown


logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass
class ServedModel:
    """A model and its queue.

    Args:
        name: What clients call it.
        translator: The model.
        languages: Its languages, both known unless the model has several directions.
        decoding: Options of `Translator.translate` for requests that set none, such as `num_beams`.
        limits: Limits of requests.
        batching: When a batch is full.
        description: What it translates, such as "Image captions".
        examples: Texts to try it with.
        load_with_heads: Loads the model with a backend that has the attention of every head. It is called when that is
            first asked for, if the backend of `translator` does not have it.
        observe_batch: Is called with the size of each batch.
    """

    name: str
    translator: Translator
    languages: Languages
    decoding: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    batching: Batching = field(default_factory=Batching)
    description: str = ""
    examples: Sequence[str] = ()
    load_with_heads: Callable[[], Translator] | None = None
    observe_batch: Callable[[int], Any] = int

    def __post_init__(self) -> None:
        several = self.translator.directions
        self.directions = several if len(several) > 1 else (self.languages,)
        if not all(self.directions):
            raise ValueError(
                f"{self.name} does not record its languages: give them with --languages, for example en-de."
            )
        model = self.translator.model
        if not getattr(model, "is_autoregressive", True):
            raise ValueError(
                f"{self.name} writes all tokens at once, and the server offers beams and prefixes: serve an "
                "autoregressive model."
            )
        # What requests get that set nothing, for clients to see.
        self.defaults = asdict(options_of(model, **self.decoding))
        if str(getattr(model, "device", "cpu")) != "cpu":
            self.batching = replace(self.batching, halve_from=None)
        self.queue = BatchingTranslator(self._translate, self.batching, self.limits.max_waiting, self.observe_batch)
        self._attention_thread = ThreadPoolExecutor(1, thread_name_prefix="attention")

    @property
    def is_calibrated(self) -> bool:
        """Whether its confidence is fitted to how often it is right."""
        return getattr(self.translator.model.generation_config, CALIBRATION, None) is not None

    @property
    def num_beams(self) -> int:
        """The beam of requests that set none, and so the number of translations that they can get."""
        return self.defaults["num_beams"]

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        languages: Languages | None = None,
        *,
        name: str | None = None,
        loading: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> "ServedModel":
        """Loads a model from a folder or the Hub.

        Args:
            name_or_path: Folder, or name on the Hub.
            languages: Its languages, if it does not record them.
            name: What clients call it; by default the name of its folder.
            loading: Options of `Translator.from_pretrained`.
            fields: Other fields of the class.
        """
        loading, name = loading or {}, name or public_name(name_or_path)
        if Path(name_or_path).is_dir():
            name_or_path = Path(name_or_path).absolute()  # a folder that vanishes becomes no name on the Hub
        translator = Translator.from_pretrained(name_or_path, **loading)
        agreed = agreed_languages(languages or Languages(), translator.languages, name_or_path)
        in_torch = {**loading, "backend": "torch", "quantization": "float32"}
        load_in_torch = partial(Translator.from_pretrained, name_or_path, **in_torch)
        return cls(name, translator, agreed, load_with_heads=load_in_torch, **{**read_card(name_or_path), **fields})

    async def start(self) -> None:
        await self.queue.start()

    async def stop(self) -> None:
        await self.queue.stop()
        await asyncio.to_thread(self._attention_thread.shutdown)

    def summary(self) -> dict[str, Any]:
        """What clients may know about the model."""
        return {
            "name": self.name,
            "directions": [direction._asdict() for direction in self.directions],
            "description": self.description,
            "examples": list(self.examples),
            **{name: self.defaults[name] for name in ("num_beams", "length_penalty")},
        }

    async def translate(
        self,
        sentences: Sequence[str],
        n_best: int = 1,
        prefixes: Sequence[str | None] | None = None,
        **decoding: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the `n_best` translations of each sentence; `decoding` overrides the model's options."""
        for sentence in sentences:
            self._require_short(sentence)
        with _tags_refused():
            return await self.queue.translate(sentences, {**self.decoding, **decoding, "n_best": n_best}, prefixes)

    async def continue_with(
        self, sentence: str, prefix: str, number: int, **decoding: Any
    ) -> list[tuple[float, Hypothesis]]:
        """Returns translations that start with a prefix and go on with different words, with the probabilities of the
        first token after the prefix. A search of one step finds these tokens, and each is then continued. A capital
        may take a token of its own: models with marks make two steps."""
        self._require_short(prefix, self.limits.max_sentence_tokens, target=True, room=8)
        steps = 2 if self.translator.marks_capitals else 1
        one_step = {"num_beams": number, "length_penalty": 0.0, "max_new_tokens": steps}
        direction = {name: decoding[name] for name in ("source_lang", "target_lang") if name in decoding}
        (starts,) = await self.translate([sentence], number, [prefix or None], **direction, **one_step)
        prefixes = [start.text for start in starts]
        complete = await self.translate([sentence] * number, 1, prefixes, **decoding)
        return [(math.exp(start.score or 0), best) for start, (best,) in zip(starts, complete, strict=True)]

    async def attend(
        self,
        sentence: str,
        translation: str,
        read: Callable[[str, Hypothesis], T],
        *,
        heads: bool = False,
        **direction: str,
    ) -> T:
        """Returns what `read` makes of a sentence and its translation with attention, if wanted that of all heads.

        It runs in a thread of its own: it takes as long as a translation.
        """
        limit = MAX_TOKENS if heads else None
        self._require_short(sentence, limit)
        self._require_short(translation, limit, target=True)

        def work() -> T:
            translator = self._translator_with_heads if heads else _fastest(self.translator)
            return read(sentence, translator.attend(sentence, translation, **direction))

        with _tags_refused():
            return await asyncio.get_running_loop().run_in_executor(self._attention_thread, work)

    def _translate(self, sentences: list[str], **options: Any) -> list[list[Hypothesis]]:
        return list(self.translator.translate(sentences, **options))

    @cached_property
    def _translator_with_heads(self) -> Translator:
        try:
            self.translator.backend.require_support("attention=True")
        except ValueError:
            if self.load_with_heads is None:
                raise
            if missing := missing_for_torch():
                names = " and ".join(missing)
                raise RequestError(400, f"heads: this server runs without {names}, which every head needs.") from None
            return self.load_with_heads()
        return self.translator

    def _require_short(self, text: str, limit: int | None = None, *, target: bool = False, room: int = 0) -> int:
        """Refuses a sentence that would be cut off, or would occupy the engine for long. A translation may have twice
        as many tokens; a beginning of one leaves `room`. Returns the number of tokens, or a number above it."""
        limit = limit or self.limits.max_sentence_tokens * (2 if target else 1)
        longest_input = self.translator.backend.longest_input
        if longest_input is not None:
            limit = min(limit, longest_input - room)
        tokens = len(text.encode("utf-8")) + 2  # a token has at least one byte
        if target or tokens > limit:
            tokens = self.translator.number_of_tokens(text, target=target)
        if tokens > limit:
            raise RequestError(
                413,
                f"The {'translation' if target else 'sentence'} that begins with {shown(text[:20])} has {tokens:,} "
                f"tokens: split it into sentences of at most {limit:,}.",
            )
        return tokens


@contextmanager
def _tags_refused() -> Iterator[None]:
    """Answers a tag in a text, `>>fr<<`, that contradicts the request."""
    try:
        yield
    except TagError as error:
        raise RequestError(400, str(error)) from error


def _fastest(translator: Translator) -> Translator:
    """Returns a translator without the engine that `auto` loads for the attention of every head."""
    fast = getattr(translator.backend, "fast", None)
    if fast is None:
        return translator
    return Translator.from_backend(fast, translator.tokenizer, translator.target_tokenizer)


@dataclass
class Catalogue:
    """The models of a server.

    Args:
        models: The models. Of several with the same languages, the first is the default.
    """

    models: list[ServedModel]

    def __post_init__(self) -> None:
        self.by_name = {model.name: model for model in self.models}
        if len(self.by_name) < len(self.models):
            raise ValueError("Two models have the same name: rename the folder of one of them.")

    @property
    def directions(self) -> list[Languages]:
        """The directions of all models, each once."""
        return list(dict.fromkeys(direction for model in self.models for direction in model.directions))

    @property
    def sources(self) -> list[str]:
        """The source languages, each once."""
        return list(dict.fromkeys(str(direction.source) for direction in self.directions))

    def targets(self, source: str) -> list[str]:
        """The target languages of a source language, each once."""
        return list(dict.fromkeys(str(each.target) for each in self.directions if each.source == source))

    def descriptions(self, source: str) -> list[str]:
        """What the models that translate from a language are for, each sentence once."""
        models = [each for each in self.models if any(str(one.source) == source for one in each.directions)]
        return list(dict.fromkeys(model.description for model in models if model.description))

    def named(self, name: str) -> ServedModel:
        if name not in self.by_name:
            raise RequestError(400, f"There is no model {shown(name)}: choose one of {', '.join(self.by_name)}.")
        return self.by_name[name]

    def find(self, direction: Languages, name: str | None = None) -> ServedModel:
        """Returns the model for a request.

        Args:
            direction: Its languages; if they are the same, no model is needed and any will do.
            name: Name of the model; by default the first one for these languages.
        """
        for model in self.models if name is None else [self.named(name)]:
            if direction in model.directions or is_unchanged(direction):
                return model
        pairs = ", ".join(map(str, self.directions))
        source, target = map(shown, map(str, direction))
        raise RequestError(400, f"source={source} and target={target} are not offered: the server translates {pairs}.")

    def languages_of(self, text: str, source: str, target: str) -> tuple[Languages, Detection]:
        """Returns the languages of a text, and how its source was found if `source` is `"auto"`."""
        try:
            languages, found = languages_of_text(
                text, Languages(source, target), tuple(self.directions), "this server"
            )
        except ValueError as error:
            raise RequestError(400, str(error)) from error
        language = languages.source or self.sources[0]
        return Languages(language, languages.target), found or Detection(language, 0.0)

    def detect(self, text: str) -> Detection:
        """Returns the language of a text, of all that the models read or write."""
        return detect(text, list(dict.fromkeys([*self.sources, *(str(each.target) for each in self.directions)])))


@dataclass
class ModelTranslator:
    """A model with the options of one request.

    Args:
        model: The model.
        n_best: Number of translations.
        decoding: Options of `Translator.translate` that override the model's.
        direction: The languages; needed for a model with several directions.
        found: The source language as it was found in the text.
        best: Gets the best translation of each sentence.
    """

    model: ServedModel
    n_best: int = 1
    decoding: Mapping[str, Any] = field(default_factory=dict)
    direction: Languages | None = None
    found: Detection | None = None
    best: list[Hypothesis] = field(default_factory=list)

    @property
    def is_unchanged(self) -> bool:
        """Whether the text is in the target language."""
        return self.direction is not None and is_unchanged(self.direction)

    @property
    def language(self) -> str:
        return str((self.direction or self.model.languages).source)

    @property
    def target_language(self) -> str:
        return str((self.direction or self.model.languages).target)

    @property
    def languages(self) -> dict[str, str]:
        """The options that tell the direction to a model with several."""
        if len(self.model.directions) == 1:
            return {}
        return {"source_lang": self.language, "target_lang": self.target_language}

    async def hypotheses(self, sentences: Sequence[str]) -> list[list[Hypothesis]]:
        if self.is_unchanged:
            words = () if self.decoding.get("confidence") else None
            return [[Hypothesis(text, 0.0, words=words, unchanged=True)] for text in sentences]
        return await self.model.translate(sentences, self.n_best, **self.languages, **self.decoding)

    async def translate(self, sentences: Sequence[str]) -> list[list[str]]:
        translations = await self.hypotheses(sentences)
        self.best += [ranked[0] for ranked in translations]
        return [[hypothesis.text for hypothesis in ranked] for ranked in translations]

    async def align(self, sentence: str, translation: str) -> WordAttention:
        return await self.attend(sentence, translation, word_attention)

    async def attend(
        self, sentence: str, translation: str, read: Callable[[str, Hypothesis], T], *, heads: bool = False
    ) -> T:
        return await self.model.attend(sentence, translation, read, heads=heads, **self.languages)

    async def continue_with(self, sentence: str, prefix: str, number: int) -> list[tuple[float, Hypothesis]]:
        return await self.model.continue_with(sentence, prefix, number, **self.languages, **self.decoding)


def public_name(model: str | Path) -> str:
    """The name of a model without the folders it is in; a run's folder `model` is named after the run."""
    parts = Path(model).parts if Path(model).exists() else (str(model),)
    return parts[-2] if parts[-1] == "model" and len(parts) > 1 else parts[-1]
