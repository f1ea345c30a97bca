"""The models that a server offers, by name and by language."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from vanilla_transformer.engines import OnnxBackend
from vanilla_transformer.hub.languages import Languages, agreed_languages
from vanilla_transformer.models.search_options import options_of
from vanilla_transformer.translation.translator import Hypothesis, Translator

from .access_limits import Limits
from .batching import Batching, BatchingTranslator
from .errors import RequestError, shown
from .words import WordAttention, word_attention


@dataclass
class ServedModel:
    """A model and its queue.

    Args:
        name: What clients call it.
        translator: The model.
        languages: Its languages, both known.
        decoding: Options of `Translator.translate` for requests that set none, such as `num_beams`.
        limits: Limits of requests.
        batching: When a batch is full.
        load_with_attention: Loads the model with a backend that has attention. It is called when attention is first
            needed, if the backend of `translator` has none.
        observe_batch: Is called with the size of each batch.
    """

    name: str
    translator: Translator
    languages: Languages
    decoding: Mapping[str, Any] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    batching: Batching = field(default_factory=Batching)
    load_with_attention: Callable[[], Translator] | None = None
    observe_batch: Callable[[int], Any] = int

    def __post_init__(self) -> None:
        if not self.languages:
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
        self.queue = BatchingTranslator(self._translate, self.batching, self.limits.max_waiting, self.observe_batch)
        self._attention_thread = ThreadPoolExecutor(1, thread_name_prefix="attention")

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
        loading = loading or {}
        if loading.get("backend") == OnnxBackend.name:
            raise ValueError(
                "backend='onnx': the server needs attention for its page and for inline tags, which exported graphs "
                "do not return. Serve the model with torch or ctranslate2."
            )
        translator = Translator.from_pretrained(name_or_path, **loading)
        agreed = agreed_languages(languages or Languages(), translator.languages, name_or_path)
        in_torch = {**loading, "backend": "torch", "quantization": "float32"}
        load_in_torch = partial(Translator.from_pretrained, name_or_path, **in_torch)
        name = name or public_name(name_or_path)
        return cls(name, translator, agreed, load_with_attention=load_in_torch, **fields)

    async def start(self) -> None:
        await self.queue.start()

    async def stop(self) -> None:
        await self.queue.stop()
        await asyncio.to_thread(self._attention_thread.shutdown)

    async def translate(self, sentences: Sequence[str], n_best: int = 1, **decoding: Any) -> list[list[Hypothesis]]:
        """Returns the `n_best` translations of each sentence; `decoding` overrides the model's options."""
        for sentence in sentences:
            self._require_short(sentence)
        return await self.queue.translate(sentences, {**self.decoding, **decoding, "n_best": n_best})

    async def attend(self, sentence: str, translation: str) -> Hypothesis:
        """Returns a translation with its attention weights."""
        self._require_short(sentence)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._attention_thread, self._attend, sentence, translation)

    def _attend(self, sentence: str, translation: str) -> Hypothesis:
        return self._translator_with_attention.attend(sentence, translation)

    def _translate(self, sentences: list[str], **options: Any) -> list[list[Hypothesis]]:
        return list(self.translator.translate(sentences, **options))

    @cached_property
    def _translator_with_attention(self) -> Translator:
        try:
            self.translator.backend.require_support("attend()")
        except ValueError:
            if self.load_with_attention is None:
                raise
            return self.load_with_attention()
        return self.translator

    def _require_short(self, sentence: str) -> None:
        """Refuses a sentence that would be cut off, or would occupy the engine for long."""
        limit = self.limits.max_sentence_tokens
        longest_input = self.translator.backend.longest_input
        if longest_input is not None:
            limit = min(limit, longest_input)
        if len(sentence.encode("utf-8")) + 2 <= limit:  # a token has at least one byte
            return
        tokens = self.translator.number_of_tokens(sentence)
        if tokens > limit:
            raise RequestError(
                413,
                f"The sentence that begins with {shown(sentence[:20])} has {tokens:,} tokens: split it into sentences "
                f"of at most {limit:,}.",
            )


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
    def sources(self) -> list[str]:
        """The source languages, each once."""
        return list(dict.fromkeys(str(model.languages.source) for model in self.models))

    def targets(self, source: str) -> list[str]:
        """The target languages of a source language, each once."""
        return list(dict.fromkeys(str(m.languages.target) for m in self.models if m.languages.source == source))

    def named(self, name: str) -> ServedModel:
        if name not in self.by_name:
            raise RequestError(400, f"There is no model {shown(name)}: choose one of {', '.join(self.by_name)}.")
        return self.by_name[name]

    def find(self, source: str, target: str, name: str | None = None) -> ServedModel:
        """Returns the model for a request.

        Args:
            source: Source language; `"auto"` if there is only one.
            target: Target language.
            name: Name of the model; by default the first one for these languages.
        """
        if source == "auto":
            source = self._only_source()
        for model in self.models if name is None else [self.named(name)]:
            if model.languages == (source, target):
                return model
        pairs = ", ".join(dict.fromkeys(str(model.languages) for model in self.models))
        raise RequestError(
            400, f"source={shown(source)} and target={shown(target)} are not offered: the server translates {pairs}."
        )

    def _only_source(self) -> str:
        if len(self.sources) > 1:
            raise RequestError(
                400, f"source='auto': this server detects no languages, send one of {', '.join(self.sources)}."
            )
        return self.sources[0]


@dataclass
class ModelTranslator:
    """A model as a `SentenceTranslator`.

    Args:
        model: The model.
        n_best: Number of translations.
        decoding: Options of `Translator.translate` that override the model's.
        results: All sentences so far, with their translations.
    """

    model: ServedModel
    n_best: int = 1
    decoding: Mapping[str, Any] = field(default_factory=dict)
    results: list[tuple[str, list[Hypothesis]]] = field(default_factory=list)

    @property
    def language(self) -> str:
        return str(self.model.languages.source)

    @property
    def target_language(self) -> str:
        return str(self.model.languages.target)

    async def translate(self, sentences: Sequence[str]) -> list[list[str]]:
        translations = await self.model.translate(sentences, self.n_best, **self.decoding)
        self.results += zip(sentences, translations, strict=True)
        return [[hypothesis.text for hypothesis in hypotheses] for hypotheses in translations]

    async def align(self, sentence: str, translation: str) -> WordAttention:
        return word_attention(sentence, await self.model.attend(sentence, translation))


def public_name(model: str | Path) -> str:
    """The name of a model without the folders it is in; a run's folder `model` is named after the run."""
    parts = Path(model).parts if Path(model).exists() else (str(model),)
    return parts[-2] if parts[-1] == "model" and len(parts) > 1 else parts[-1]
