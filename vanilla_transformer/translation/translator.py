"""Text in, translation out: `Translator`.

    from vanilla_transformer import Translator

    translator = Translator.from_pretrained("runs/demo/model")
    translator("Do you know where he works?")                   # 'Weißt du, wo er arbeitet?'
    translator(["The cat sleeps.", "I am reading a book."])     # a list, in the order given
    Translator.from_pretrained("runs/demo/model", backend="ctranslate2", quantization="int8")   # several times as fast

    translator("Guten Tag", source_lang="de", target_lang="fr")   # a model with several directions

Any encoder-decoder of the library that translates can be used: this package's, MarianMT, NLLB, M2M100, mBART-50, T5.
Several threads may share one `Translator`.
"""

import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain, count, islice, repeat
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tokenizers.decoders import ByteLevel

from vanilla_transformer.engines import Backend, backend_named
from vanilla_transformer.hub.installed import require_torch
from vanilla_transformer.hub.languages import Directions, Languages, languages_of
from vanilla_transformer.hub.process_locks import LOADING, TOKENIZING
from vanilla_transformer.hub.saved_files import HUB_OPTIONS, find_model, is_family
from vanilla_transformer.hub.saved_tokenizer import read_tokenizers
from vanilla_transformer.models.search_options import BeamSearchOptions, SearchOptions, require_supported
from vanilla_transformer.models.searches import all_options, options_of, require_values
from vanilla_transformer.models.tokenization_vanilla_transformer import CAPITAL_MARK

from .confidence import Calibration, Word, calibration_of, words_of
from .copied_parts import CopiedParts, protected_pair, restored
from .glossary import Glossary, continuing_tokens
from .language_conventions import Convention, convention_of
from .language_detection import Detection, is_unchanged
from .long_texts import MAX_SOURCE_TOKENS, Pieces
from .words import pharaoh, word_attention


if TYPE_CHECKING:  # engines without torch need neither
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from vanilla_transformer.engines.engine import Array

    AnyTokenizer: TypeAlias = Any  # the library's, or a SavedTokenizer

logger = logging.getLogger(__name__)

LONG_TEXTS = ("cut", "chunk")
MOST_BEAMS_FOR_TERMS = 32  # more beams take time, and long terms are completed with these, too
LARGEST_EXPONENT = 709.0  # whose exponential is a number
WITHOUT_TORCH = ("auto", "ctranslate2")  # engines that may need neither torch nor transformers
OWN_NAMES = {"num_return_sequences": "n_best", "do_sample": "sample"}
# Arguments of `generate` that `Translator` sets itself, or that an engine would ignore.
OF_GENERATE = (
    *("inputs", "input_ids", "attention_mask", "decoder_input_ids", "encoder_outputs", "generation_config", "search"),
    *("options", "use_cache", "return_dict_in_generate", "custom_generate", "synced_gpus", "assistant_model"),
    "streamer",
)
LIMITS = ("max_tokens", "window", "max_source_tokens", "long_texts")


GlossaryOption = Glossary | Mapping[str, str] | None
SEVERAL_SENTENCES = 3  # ends of sentences inside a text from which on a hint is logged
_SENTENCE_END = re.compile(r"[.!?][\"'”»)]?\s+(?=[^\W\d_a-z])|[。！？](?=\S)")


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one text.

    Args:
        text: The translation.
        score: Log-probability divided by the length penalty; `None` for samples and given translations.
        source_tokens: The tokens of the source, as the model read them.
        tokens: The tokens of the translation.
        read_tokens: The tokens that the decoder read to write them: its first token, then all `tokens` but the last.
        attention: Attention of each decoder layer and head from `tokens` to `source_tokens`: [layers, heads, T, S].
        decoder_attention: Self-attention of the decoder over `read_tokens`: [layers, heads, T, T]; `None` for a
            recurrent decoder.
        encoder_attention: Self-attention of the encoder over `source_tokens`: [layers, heads, S, S]; `None` for a
            recurrent encoder.
        source: The text, if there is attention or an alignment.
        alignment_weights: How much each of `tokens` is a translation of each of `source_tokens`: [T, S].
        log_probabilities: Log-probability of each of `tokens` after those before it; `None` unless translated with
            confidence.
        words: The words with their log-probability and confidence; `None` unless translated with confidence.
        is_calibrated: Whether the confidence is that of a calibrated model, or bare probabilities.
        not_copied: Addresses, numbers and the like that the translation changes, because the model lost a placeholder.
        detected: The source language, if the text or the order of the model's directions decided; `None` if it was
            given or is the only one.
        unchanged: Whether the text is in the target language, so that `text` is the text itself.
    """

    text: str
    score: float | None = None
    source_tokens: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    read_tokens: tuple[str, ...] = ()
    attention: "Array | None" = None
    decoder_attention: "Array | None" = None
    encoder_attention: "Array | None" = None
    source: str = ""
    alignment_weights: "Array | None" = None
    log_probabilities: tuple[float, ...] | None = None
    words: tuple[Word, ...] | None = None
    is_calibrated: bool = False
    not_copied: tuple[str, ...] = ()
    detected: Detection | None = None
    unchanged: bool = False

    @property
    def confidence(self) -> float | None:
        """The mean confidence of the words: the share of them that is expected to be right, if the model is
        calibrated. `None` unless translated with confidence; 1 for the translation of an empty text."""
        if self.words is None:
            return None
        return fmean(word.confidence for word in self.words) if self.words else 1.0

    @property
    def alignment(self) -> list[tuple[int, int]]:
        """Pairs (index of a source token, index of a token): for each token the source token it attends to most.

        The weights are those of the head that learned word links or, in a model without one, of the last layer but
        one, averaged over heads.
        """
        weights = self._require_alignment()
        if not self.tokens:
            return []  # the translation of an empty text
        return [(int(source_index), index) for index, source_index in enumerate(weights.argmax(-1))]

    @property
    def word_alignment(self) -> str:
        """The same for words, in Pharaoh's format: `0-0 2-1` is for each word of the translation the word of the text
        that it attends to most. Words and punctuation marks count, from 0."""
        self._require_alignment()
        return pharaoh(word_attention(self.source, self).alignment) if self.tokens else ""

    def _require_alignment(self) -> "Array":
        if self.alignment_weights is None:
            raise ValueError("No alignment was kept: translate with alignment=True, or attention=True.")
        return self.alignment_weights


@dataclass(frozen=True)
class TranslationProbability:
    """The probability that a model gives to a translation, end of sentence included.

    Args:
        log_probability: Natural logarithm of the probability.
        tokens: Number of tokens.
    """

    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        exponent = -self.log_probability / self.tokens
        return math.exp(exponent) if exponent < LARGEST_EXPONENT else math.inf


class Translator:
    """Translates any number of texts with a model, in batches of similar length.

    Args:
        model: The model.
        tokenizer: Its tokenizer, or the source's.
        target_tokenizer: The target's, for separate vocabularies.
        backend: The engine that decodes: `"torch"`; `"ctranslate2"`, which is faster and must be installed; or
            `"auto"`, the fastest installed one with the translations of torch. A model in memory stays in torch.
        quantization: Type of the weights, one of the backend's `quantizations`: `"float32"` for the weights as they
            are; CTranslate2 has `"int8"` and more.
        split_sentences: Whether a text is split into sentences, which are translated one by one and joined with the
            white space of the text. `True` splits by the source language of the model; or give a language, such as
            `"en"`. It needs sentencex.
        limits: `max_tokens`, `window`, `max_source_tokens` and `long_texts`, see `set_limits`.
    """

    @LOADING
    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        target_tokenizer: "PreTrainedTokenizerBase | None" = None,
        *,
        backend: str = "auto",
        quantization: str = "float32",
        split_sentences: bool | str = False,
        **limits: Any,
    ):
        self.set_limits(**limits)
        self.backend: Backend = backend_named(backend).from_model(
            model, tokenizer, target_tokenizer, quantization=quantization
        )
        self.tokenizer: AnyTokenizer = tokenizer
        self.target_tokenizer: AnyTokenizer = target_tokenizer or tokenizer
        self.split_sentences = split_sentences

    @classmethod
    def from_backend(
        cls,
        backend: Backend,
        tokenizer: "AnyTokenizer",
        target_tokenizer: "AnyTokenizer | None" = None,
        *,
        split_sentences: bool | str = False,
        **limits: Any,
    ) -> "Translator":
        """Makes a translator of a backend that is already loaded; the arguments are those of the class."""
        translator = cls.__new__(cls)
        translator.set_limits(**limits)
        translator.backend = backend
        translator.tokenizer, translator.target_tokenizer = tokenizer, target_tokenizer or tokenizer
        translator.split_sentences = split_sentences
        return translator

    @classmethod
    @LOADING
    def from_pretrained(
        cls,
        name_or_path: str | Path | Sequence[str | Path],
        *,
        device: str | None = None,
        backend: str = "auto",
        quantization: str = "float32",
        verbose: bool = False,
        **options: Any,
    ) -> "Translator":
        """Loads model and tokenizers from a folder or the Hub.

        Args:
            name_or_path: Folder, name on the Hub, or a bundled model: `"everyday"` translates everyday sentences
                between English and German, French, Spanish and Chinese, `"multi30k-en-de-tiny"` English image captions
                into German. Several are an ensemble: the mean of their probabilities decides. They need the same
                vocabulary, and torch.
            device: Where to run; a GPU if there is one.
            backend: As above. CTranslate2 converts the model once and keeps the result beside the model's files, or in
                the user's cache.
            quantization: As above.
            verbose: Whether to log which engine `"auto"` chose and why, as a warning and not only as information.
            options: `split_sentences` as above, the limits of `set_limits`, and options of `from_pretrained` such as
                `dtype` and `revision`.
        """
        own_options = {name: options.pop(name) for name in (*LIMITS, "split_sentences") if name in options}
        if "subfolder" in options:
            raise ValueError(f"subfolder={options['subfolder']!r}: give the folder itself as the model.")
        hub_options = {name: value for name, value in options.items() if name in HUB_OPTIONS}
        if isinstance(name_or_path, str | Path) and is_family(name_or_path):
            from .translator_family import TranslatorFamily

            how = {"device": device, "backend": backend, "quantization": quantization, "verbose": verbose, **options}
            return TranslatorFamily(str(name_or_path), partial(cls.from_pretrained, **how), **own_options)
        several = [name_or_path] if isinstance(name_or_path, str | Path) else list(name_or_path or [])
        names = [find_model(name) for name in several]
        if not names:
            raise ValueError("There is no model to load: give at least one folder or name on the Hub.")
        if backend not in WITHOUT_TORCH:
            require_torch(f"backend={backend!r}")
            _require_device(device)
        backend_class = backend_named(backend)
        where: dict[str, Any] = {"device": device, "quantization": quantization, **options}
        if len(names) > 1:
            if backend not in ("auto", "torch"):
                title = backend_class.title
                raise ValueError(f"{title} can't decode an ensemble: give one model, or leave out backend.")
            require_torch("An ensemble")
            from vanilla_transformer.engines.ensemble_engine import EnsembleBackend

            _require_device(device)
            tokenizers = _load_same_tokenizers(names, **hub_options)
            return cls.from_backend(EnsembleBackend.from_members(names, **where), *tokenizers, **own_options)
        if backend == "auto":
            where["verbose"] = verbose
        loaded = backend_class.from_pretrained(names[0], **where)
        return cls.from_backend(loaded, *_load_tokenizers(names[0], **hub_options), **own_options)

    def set_limits(
        self,
        *,
        max_tokens: int = 2048,
        window: int = 4096,
        max_source_tokens: int = MAX_SOURCE_TOKENS,
        long_texts: str = "cut",
    ) -> None:
        """Sets how much is read at a time.

        Args:
            max_tokens: Source tokens in a batch, padding included. Larger batches need more memory and suit a GPU.
            window: Number of texts that are read ahead and sorted by length. Results are returned a window at a time.
            max_source_tokens: The longest text in tokens. A model with fewer positions reads only as many as it has.
            long_texts: What is done with a longer text. `"cut"` translates its beginning, with a warning. `"chunk"`
                translates it sentence by sentence and joins the translations; it needs sentencex.
        """
        for name, value in (("max_tokens", max_tokens), ("window", window), ("max_source_tokens", max_source_tokens)):
            _require_number(name, value)
        if long_texts not in LONG_TEXTS:
            raise ValueError(f"long_texts={long_texts!r} is unknown: choose one of {', '.join(LONG_TEXTS)}.")
        self.max_tokens, self.window = max_tokens, window
        self.max_source_tokens, self.long_texts = max_source_tokens, long_texts

    @property
    def model(self) -> Any:
        """The backend's model, with `config` and `generation_config`. In torch it is the `PreTrainedModel`."""
        return self.backend.model

    @property
    def languages(self) -> Languages:
        """The languages that the model records; `None` for those that it does not."""
        return languages_of(self.backend.config, self.tokenizer)

    @property
    def directions(self) -> Directions:
        """The directions that the model records; none if it does not say."""
        return self._convention.directions

    @cached_property
    def marks_capitals(self) -> bool:
        """Whether translations are written with marks for capitals, which have no text of their own."""
        with TOKENIZING:
            ids = self.target_tokenizer(text_target=CAPITAL_MARK, add_special_tokens=False)["input_ids"]
            return not self.target_tokenizer.decode(ids).strip()

    @property
    def placeholders(self) -> int:
        """How many placeholders for addresses, numbers and the like the model knows; 0 if it was not trained so."""
        return getattr(self.backend.config, "placeholders", None) or 0

    @cached_property
    def calibration(self) -> Calibration | None:
        """What turns probabilities into confidence; `None` for a model that is not calibrated."""
        return calibration_of(self.backend.generation_config)

    @cached_property
    def _convention(self) -> Convention:
        """How the model is told the languages of a text."""
        return convention_of(self.backend.config, self.tokenizer)

    def __call__(self, texts: str | Iterable[str], **options: Any) -> str | list[str]:
        """Returns the best translation of each text as text; the options are those of `translate`."""
        if isinstance(texts, str):
            return next(self.translate([texts], **options))[0].text
        return [hypotheses[0].text for hypotheses in self.translate(texts, **options)]

    def translate(
        self,
        texts: Iterable[str],
        *,
        n_best: int = 1,
        prefix: str | Iterable[str | None] | None = None,
        sample: bool = False,
        attention: bool = False,
        alignment: bool = False,
        confidence: bool = False,
        progress: bool = False,
        split_sentences: bool | str | None = None,
        glossary: GlossaryOption | Iterable[GlossaryOption] = None,
        source_lang: str | Iterable[str | None] | None = None,
        target_lang: str | Iterable[str | None] | None = None,
        zero_shot: bool = False,
        numbers: Iterable[int] | None = None,
        **generation: Any,
    ) -> Iterator[list[Hypothesis]]:
        """Yields the translations of each text, best first, in the order of the texts.

        An empty text has an empty translation, with or without a prefix. A text that is longer than
        `max_source_tokens`, or than the model can read, is cut with a warning or translated in chunks: see
        `set_limits`. The score of a translation in chunks is the sum of their scores.

        Args:
            texts: A list, a `datasets` column, or any iterator. Only one window of it is kept in memory.
            n_best: Number of translations of each text, at most `num_beams` (mask-predict: `length_candidates`).
            prefix: The beginning of the translations: one for all texts, or one (or `None`) for each text.
            sample: Whether to draw translations at random instead of searching for the best.
            attention: Whether to keep the attention weights of encoder and decoder.
            alignment: Whether to keep which source token each token is a translation of. CTranslate2 has it, too.
            confidence: Whether to keep the log-probability of each token and word, and how sure the model is. This
                takes one more pass over the finished translations.
            progress: Whether to show a progress bar.
            split_sentences: Replaces the setting of the translator. A text in sentences has one translation, whose
                score is the sum of the sentences'.
            glossary: Terms and their translations, as a `Glossary` or a dict: one for all texts, or one (or `None`)
                for each text. A translation contains the target term for each source term of its text.
            source_lang: The language of the texts, or of each text, if the model has several. Without it, or with
                `"auto"`, the text decides: see `Hypothesis.detected`.
            target_lang: The language of the translations, or of each, if the model has several. A text may also have
                a tag in front, which must agree: `>>de<< Hello.` The tag is no part of the text. A text in this
                language comes back unchanged.
            zero_shot: Whether the model may be asked for a direction that it was not trained on.
            numbers: The numbers of the texts in warnings and errors; by default they count from 1.
            generation: Options of `generate` and of the search. By default `num_beams` and `length_penalty` come from
                the model's `generation_config`, or are the paper's (4 and 0.6) if it has none. With `sample`, for
                instance `temperature` and `top_k`. A model that writes all tokens at once has other options:
                `iterations`, `length_candidates`, `length_ratio` and `length_alpha`. By default they are its own, or
                10, 5, 1 and 1.
        """
        require_several(texts)
        split_sentences = self.split_sentences if split_sentences is None else split_sentences
        if split_sentences:
            _require_sentences(n_best=n_best, prefix=prefix, attention=attention, alignment=alignment)
        if self.long_texts == "chunk" and (attention or alignment or n_best > 1):
            raise ValueError(
                "long_texts='chunk' joins the best translations: leave out attention, alignment and n_best, or it."
            )
        decoding = self._decoding(n_best, sample, generation)
        if glossary is not None and sample:
            raise ValueError("A glossary needs a search: leave out sample=True, or the glossary.")
        self.backend.require_options(decoding.options, sample=sample, glossary=glossary is not None)
        empty = Hypothesis("", None if sample else 0.0)
        if confidence:
            self.backend.require_support("confidence=True")
            empty = replace(empty, log_probabilities=(), words=(), is_calibrated=self.calibration is not None)
            if self.calibration is None:
                _warn_once(
                    "The confidence is uncalibrated: it is the mean probability of a word, and not the share of words "
                    "that is right. vanilla calibrate stores a calibration with the model."
                )
        if attention:
            self.backend.require_support("attention=True")
            import torch

            empty = replace(empty, attention=torch.zeros(0, 0, 0, 0))
        if alignment:
            self.backend.require_support("alignment=True")
        if alignment or attention:
            empty = replace(empty, alignment_weights=())
        if isinstance(target_lang, str) and isinstance(source_lang, str | None):
            # refuses now what all texts would be refused for
            self._convention.untagged("", Languages(source_lang, target_lang), zero_shot=zero_shot)
        requests = requests_of(texts, prefix, glossary, source_lang, target_lang)
        numbered = (
            (number, self._untagged(number, request, zero_shot))
            for number, request in zip(numbers or count(1), requests, strict=False)
        )
        in_pieces = bool(split_sentences) or self.long_texts == "chunk"
        total = None if in_pieces else _length_of(texts)
        bar = _bar(progress, total=total, desc="translating", unit=" texts")
        # A generator starts with the first `next`. All checks above run now.
        details = _Details(attention, alignment, confidence)
        run = partial(self._translate_windows, decoding=decoding, empty=empty, details=details, bar=bar)
        if not in_pieces:
            return run(numbered)
        language = split_sentences if isinstance(split_sentences, str) else None
        if language is None and source_lang is None and len(self.directions) <= 1:
            language = self._source_language() if split_sentences else self.languages.source or "en"
        return self._translate_pieces(numbered, language, bool(split_sentences), run)

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        source_lang: str | None = None,
        target_lang: str | None = None,
        progress: bool = False,
    ) -> Iterator[TranslationProbability]:
        """Yields the probability of the target of each (source, target), in the order given.

        Args:
            pairs: Texts and translations.
            source_lang: The language of the texts, if the model has several.
            target_lang: The language of the translations, if the model has several.
            progress: Whether to show a progress bar.
        """
        self.backend.require_support("score()")
        given = Languages(source_lang, target_lang)
        bar = _bar(progress, desc="scoring", unit=" pairs")
        return self._score_windows(pairs, given, bar)

    def attend(
        self, source: str, target: str, *, source_lang: str | None = None, target_lang: str | None = None
    ) -> Hypothesis:
        """Returns a given translation with its attention weights, as if the search had written it."""
        self.backend.require_support("attend()")
        pair = self._encode_pair(1, source, target, Languages(source_lang, target_lang))
        ids = [self._start_token(), *pair.target_ids]
        hypothesis = self._with_attention([Hypothesis(pair.target)], [pair.source], [pair.source_ids], [ids])[0]
        return restored(hypothesis, pair.text, pair.values) or hypothesis

    def number_of_tokens(self, text: str, *, target: bool = False) -> int:
        """Returns how many tokens the model reads for a source text, or writes for a target text, the end included."""
        _require_text(1, text)
        with TOKENIZING:
            encoded = self.target_tokenizer(text_target=text) if target else self.tokenizer(text)
        return len(encoded["input_ids"])

    def _decoding(self, n_best: int, sample: bool, generation: dict[str, Any]) -> "_Decoding":
        """Checks the options of a call, and fills in the model's and the search's own."""
        _require_number("n_best", n_best)
        for name in generation:
            if name in OWN_NAMES:
                raise ValueError(f"{name} is {OWN_NAMES[name]} here: set that.")
            if name in OF_GENERATE:
                raise ValueError(f"{name} is no option of Translator: leave it out, or call generate() of the model.")
        for name in ("max_new_tokens", "max_length"):
            if generation.get(name) is not None:
                _require_number(name, generation[name])
        require_supported(self.backend.generation_config, generation, sample=sample)
        of_search = all_options()
        given = {name: generation[name] for name in of_search if generation.get(name) is not None}
        others = {name: value for name, value in generation.items() if name not in of_search}
        require_values(**given)
        if sample:
            length = SearchOptions(**{name: given.pop(name) for name in ("max_extra_tokens",) if name in given})
            given = {"num_beams": 1, **given}
            if given["num_beams"] == 1:
                given["length_penalty"] = 1.0  # it has no effect, and the library warns about any other value
            return _Decoding(None, length, n_best, {**given, **others})
        search = options_of(self.backend.model, **given)
        if n_best > search.width:
            raise ValueError(f"n_best={n_best} is more than {search.breadth}={search.width} can find.")
        return _Decoding(search, search, n_best, others)

    # --- languages of texts ---

    def _untagged(self, number: int, request: "Request", zero_shot: bool) -> "Request":
        """Returns a request without the tag of its text, with the languages of tag, text and model."""
        _require_text(number, request.text)
        text, languages, detected = self._convention.untagged(request.text, request.languages, zero_shot=zero_shot)
        return replace(request, text=text, languages=languages, detected=detected)

    # --- sentences of texts ---

    def _source_language(self) -> str:
        if self.languages.source is None:
            raise ValueError(
                "The model does not record its source language, by which text is split into sentences: give it, for "
                'example split_sentences="en".'
            )
        return self.languages.source

    def _translate_pieces(
        self,
        numbered: "Iterator[tuple[int, Request]]",
        language: str | None,
        into_sentences: bool,
        translate: "Callable[[Iterator[tuple[int, Request]]], Iterator[list[Hypothesis]]]",
    ) -> Iterator[list[Hypothesis]]:
        """Translates texts piece by piece: sentences, and parts of what is too long for the model."""
        cut: deque[tuple[Pieces, str | None]] = deque()  # texts whose translation is not complete yet, and into what
        how = {"sentences": into_sentences, **(self._limit_of_pieces() if self.long_texts == "chunk" else {})}

        def requests() -> "Iterator[tuple[int, Request]]":
            for number, request in numbered:
                _require_text(number, request.text)
                if request.is_unchanged:
                    pieces = Pieces([request.text])
                else:
                    pieces = Pieces.of(request.text, language or request.languages.source or "en", **how)
                cut.append((pieces, request.languages.target or self.languages.target))
                for text, prefix in zip(pieces.texts or [""], chain([request.prefix], repeat(None)), strict=False):
                    yield number, replace(request, text=text, prefix=prefix)

        translations = translate(requests())
        for (first,) in translations:
            pieces, target_language = cut.popleft()
            rest = [hypothesis for (hypothesis,) in islice(translations, len(pieces.texts) - 1 if pieces.texts else 0)]
            if into_sentences or rest:
                first = _joined(pieces, [first, *rest], target_language)
            yield [first]

    def _limit_of_pieces(self) -> dict[str, Any]:
        """The length of a text in tokens as a function, and the longest text that the model reads."""
        with TOKENIZING:
            special = len(self.tokenizer("")["input_ids"])  # the end of sentence

        def length(text: str) -> int:
            with TOKENIZING:
                return len(self.tokenizer(text)["input_ids"]) - special

        return {"length": length, "limit": max(self._longest_text() - special, 1)}

    # --- windows of texts ---

    def _translate_windows(
        self,
        numbered: "Iterator[tuple[int, Request]]",
        *,
        decoding: "_Decoding",
        empty: Hypothesis,
        details: "_Details",
        bar: Any,
    ) -> Iterator[list[Hypothesis]]:
        """Translates texts with their prefixes and terms, a window at a time."""
        of_model = partial(self._translate_window, decoding=decoding, empty=empty, details=details)
        translate: Callable[..., list[list[Hypothesis]]] = partial(of_model, bar=bar)
        if self.placeholders:
            complete = not {"max_length", "max_new_tokens"} & decoding.options.keys()
            calibration = self.calibration if details.confidence else None
            stage = CopiedParts(self.placeholders, empty, decoding.n_best, complete, calibration)
            translate = partial(stage.translate, through=translate, again=partial(of_model, bar=_NoBar()))
        with bar:
            while window := list(islice(numbered, self.window)):
                found = iter(translate([item for item in window if not item[1].is_unchanged]))
                for _, request in window:
                    unchanged = [replace(empty, text=request.text, unchanged=True)] * decoding.n_best
                    hypotheses = unchanged if request.is_unchanged else next(found)
                    yield [replace(each, detected=request.detected) for each in hypotheses]

    def _translate_window(
        self,
        window: "Sequence[tuple[int, Request]]",
        *,
        decoding: "_Decoding",
        empty: Hypothesis,
        details: "_Details",
        bar: Any,
    ) -> list[list[Hypothesis]]:
        sources = [self._encode_source(number, request) for number, request in window]
        results: list[list[Hypothesis]] = [[empty] * decoding.n_best for _ in sources]
        sizes = {index: (source.shape, len(source.ids)) for index, source in enumerate(sources) if source is not None}
        for batch in self._batches(sizes):
            batch_sources = [source for index in batch if (source := sources[index]) is not None]
            translations = self._translate_batch(batch_sources, decoding, details)
            for index, hypotheses in zip(batch, translations, strict=True):
                results[index] = hypotheses
            bar.update(len(batch))
        bar.update(len(sources) - len(sizes))
        return results

    def _score_windows(
        self, pairs: Iterable[tuple[str, str]], given: Languages, bar: Any
    ) -> Iterator[TranslationProbability]:
        """Scores pairs, a window at a time."""
        numbered = enumerate(pairs, start=1)
        with bar:
            while window := list(islice(numbered, self.window)):
                encoded = [
                    self._encode_pair(number, source, target, given)
                    for number, (source, target) in map(_require_pair, window)
                ]
                sizes = {
                    index: ((0, 0), max(len(pair.source_ids), len(pair.target_ids)))
                    for index, pair in enumerate(encoded)
                }
                results: dict[int, TranslationProbability] = {}
                for batch in self._batches(sizes):
                    results |= zip(batch, self._score_batch([encoded[index] for index in batch]), strict=True)
                    bar.update(len(batch))
                yield from (results[index] for index in range(len(encoded)))

    def _batches(self, sizes: dict[int, tuple[tuple[int, int], int]]) -> Iterator[list[int]]:
        """Groups texts of similar length, the longest first: a batch that needs too much memory then fails at once.

        Args:
            sizes: Index of each text -> (its shape, its length). Texts of one batch have the same shape.
        """
        batch: list[int] = []
        for index in sorted(sizes, key=sizes.__getitem__, reverse=True):
            shape, _ = sizes[index]
            if batch:
                first_shape, longest = sizes[batch[0]]
                if (len(batch) + 1) * longest > self.max_tokens or shape != first_shape:
                    yield batch
                    batch = []
            batch.append(index)
        if batch:
            yield batch

    # --- from text to ids ---

    def _encode_source(self, number: int, request: "Request") -> "_Source | None":
        """Returns a text as the model reads it; `None` for an empty text."""
        text = request.text
        _require_text(number, text)
        if not text.strip():
            return None
        with TOKENIZING:
            first_tokens = self._convention.first_tokens(self.target_tokenizer, request.languages)
        prefix_ids = [self._start_token(), *first_tokens]
        if request.prefix:
            prefix_ids += self._encode_part(number, request.prefix)
        terms = [self._encode_part(number, term) for term in request.glossary.terms_for(text)]
        ids = self._encode(number, text, request.languages)
        if len(_SENTENCE_END.findall(text)) >= SEVERAL_SENTENCES:
            _warn_once(
                "A text has several sentences, but models are trained on single ones and may drop the rest: "
                "split_sentences=True (--split_sentences) translates sentence by sentence."
            )
        return _Source(number, text, ids, prefix_ids, terms)

    def _encode_part(self, number: int, text: str) -> list[int]:
        """Returns the ids of a part of a translation."""
        _require_text(number, text)
        with TOKENIZING:
            return self.target_tokenizer(text_target=text, add_special_tokens=False)["input_ids"]

    def _encode_pair(self, number: int, source: str, target: str, given: Languages) -> "_Pair":
        """Returns a text and a given translation as the model reads them."""
        for text in (source, target):
            _require_text(number, text)
        text, languages, _ = self._convention.untagged(source, given)
        source, target, values = protected_pair(text, target, self.placeholders)
        with TOKENIZING:
            self._convention.set_languages(self.target_tokenizer, languages)
            target_ids = self.target_tokenizer(text_target=target)["input_ids"]
        if len(target_ids) > (limit := self._longest_text()):
            raise ValueError(
                f"Translation {number} has {len(target_ids)} tokens; {self._limited_by('writes')} {limit}: shorten or "
                "drop it."
            )
        return _Pair(text, values, source, target, self._encode(number, source, languages), target_ids)

    def _encode(self, number: int, text: str, languages: Languages) -> list[int]:
        with TOKENIZING:
            self._convention.set_languages(self.tokenizer, languages)
            ids = self.tokenizer(self._convention.tagged(text, languages))["input_ids"]
        if len(ids) > (limit := self._longest_text()):
            logger.warning(
                f"Text {number} has {len(ids)} tokens; {self._limited_by('reads')} {limit}: the rest is cut off. "
                "long_texts='chunk' translates all of it."
            )
            ids = [*ids[: limit - 1], ids[-1]]  # keep the end of sentence
        return ids

    def _longest_text(self) -> int:
        longest_input = self.backend.longest_input
        return self.max_source_tokens if longest_input is None else min(self.max_source_tokens, longest_input)

    def _limited_by(self, verb: str) -> str:
        """Returns the beginning of a sentence about `_longest_text`."""
        is_given = self._longest_text() == self.max_source_tokens
        return "max_source_tokens is" if is_given else f"{self.backend.title} {verb}"

    def _start_token(self) -> int:
        for config in (self.backend.generation_config, self.backend.config):
            if getattr(config, "decoder_start_token_id", None) is not None:
                return config.decoder_start_token_id
        raise ValueError("The model's config has no decoder_start_token_id: set it to the decoder's first token.")

    # --- from ids to text ---

    def _translate_batch(
        self, sources: "list[_Source]", decoding: "_Decoding", details: "_Details"
    ) -> list[list[Hypothesis]]:
        source_ids, prefixes = [source.ids for source in sources], [source.prefix for source in sources]
        search, options, number = decoding.search, decoding.options, decoding.n_best
        if "max_new_tokens" not in options:
            longest = max(map(len, source_ids))
            max_length = decoding.length.max_length(longest, len(prefixes[0]), self.backend.longest_input)
            options = {"max_length": max_length, **options}
        if (needed := sources[0].shape[1]) and isinstance(search, BeamSearchOptions):
            from .required_terms import LexicalConstraints

            # Room for hypotheses with some of the terms.
            search = replace(search, num_beams=search.num_beams + min(needed, MOST_BEAMS_FOR_TERMS))
            terms = [source.terms for source in sources]
            options = {**options, "selection": LexicalConstraints(terms, self._continues_word())}
        sequences, scores = self.backend.generate(
            source_ids, prefixes, search=search, num_return_sequences=number, **options
        )
        without = _without_impossible_terms(sources, scores, number)
        targets = [self._until_end(ids) for ids in sequences]
        with TOKENIZING:
            texts = self.target_tokenizer.batch_decode(targets, skip_special_tokens=True)
        hypotheses = [
            Hypothesis(text, score) for text, score in zip(texts, scores or repeat(None), strict=scores is not None)
        ]
        repeated = [ids for ids in source_ids for _ in range(number)]
        if details.attention or details.alignment:
            texts = [source.text for source in sources for _ in range(number)]
            hypotheses = self._with_attention(hypotheses, texts, repeated, targets, every_head=details.attention)
        if details.confidence:
            hypotheses = self._with_confidence(hypotheses, repeated, targets)
        translations = [hypotheses[row : row + number] for row in range(0, len(hypotheses), number)]
        again = self._translate_batch(list(without.values()), decoding, details) if without else []
        for index, translation in zip(without, again, strict=True):
            translations[index] = translation
        return translations

    def _continues_word(self) -> "torch.Tensor | None":
        config = self.backend.config
        sizes = (getattr(config, name, None) for name in ("target_vocab_size", "decoder_vocab_size", "vocab_size"))
        with TOKENIZING:
            return continuing_tokens(self.target_tokenizer, next(size for size in sizes if size))

    def _with_attention(
        self,
        hypotheses: list[Hypothesis],
        texts: list[str],
        sources: list[list[int]],
        targets: list[list[int]],
        *,
        every_head: bool = True,
    ) -> list[Hypothesis]:
        """Adds attention weights and tokens to finished translations.

        The decoder reads all tokens but the last. Row t of its weights belongs to token t + 1, which it wrote.
        """
        # `auto` has the alignment from its fast engine, but not every head.
        attend = self.backend.attend if every_head else getattr(self.backend, "align", self.backend.attend)
        weights = attend(sources, [ids[:-1] for ids in targets])
        aligned = []
        for hypothesis, text, source, ids, found in zip(hypotheses, texts, sources, targets, weights, strict=True):
            heads = {"attention": found.cross, "decoder_attention": found.decoder, "encoder_attention": found.encoder}
            known = replace(
                hypothesis,
                source=text,
                source_tokens=_readable_tokens(self.tokenizer, source),
                tokens=_readable_tokens(self.target_tokenizer, ids[1:]),
                read_tokens=_readable_tokens(self.target_tokenizer, ids[:-1]),
                alignment_weights=found.alignment,
            )
            aligned.append(replace(known, **heads) if every_head else known)
        return aligned

    def _with_confidence(
        self, hypotheses: list[Hypothesis], sources: list[list[int]], targets: list[list[int]]
    ) -> list[Hypothesis]:
        """Adds the log-probabilities of tokens and words to finished translations."""
        sure = []
        for hypothesis, ids, row in zip(hypotheses, targets, self._log_probabilities(sources, targets), strict=True):
            tokens = hypothesis.tokens or _readable_tokens(self.target_tokenizer, ids[1:])
            words = words_of(hypothesis.text, tokens, row, self.calibration)
            known = replace(hypothesis, tokens=tokens, log_probabilities=tuple(row), words=words)
            sure.append(replace(known, is_calibrated=self.calibration is not None))
        return sure

    def _log_probabilities(self, sources: list[list[int]], targets: list[list[int]]) -> list[list[float]]:
        """Returns the log-probability of each token of each target, in batches of `max_tokens`."""
        rows: list[list[float]] = [[] for _ in targets]
        sizes = {
            index: ((0, 0), max(len(source), len(target)))
            for index, (source, target) in enumerate(zip(sources, targets, strict=True))
            if len(target) > 1  # an engine that finds fewer translations than are wanted gives empty ones
        }
        for batch in self._batches(sizes):
            scores = self.backend.score([sources[index] for index in batch], [targets[index] for index in batch])
            for index, row in zip(batch, scores, strict=True):
                rows[index] = row
        return rows

    def _score_batch(self, pairs: "list[_Pair]") -> list[TranslationProbability]:
        targets = [[self._start_token(), *pair.target_ids] for pair in pairs]
        log_probabilities = self.backend.score([pair.source_ids for pair in pairs], targets)
        return [
            TranslationProbability(math.fsum(row), len(pair.target_ids))
            for row, pair in zip(log_probabilities, pairs, strict=True)
        ]

    def _until_end(self, ids: list[int]) -> list[int]:
        """Cuts ids after the end of sentence, or before the padding of a translation that has none."""
        end, padding = self.target_tokenizer.eos_token_id, self.backend.config.pad_token_id
        for index, token_id in enumerate(ids[1:], start=1):  # the decoder's first token may be padding
            if token_id == end:
                return ids[: index + 1]
            if token_id == padding:
                return ids[:index]
        return ids


@dataclass(frozen=True)
class _Decoding:
    """The checked options of a call: those of the search, `None` for samples; what limits the length; the number of
    translations; and further options of `generate`."""

    search: SearchOptions | None
    length: SearchOptions
    n_best: int
    options: dict[str, Any]


class _Details(NamedTuple):
    """What a call keeps beside the text and the score."""

    attention: bool = False
    alignment: bool = False
    confidence: bool = False


@dataclass(frozen=True)
class _Source:
    """A text as the model reads it: its number, its ids, and the ids that its translation starts with and contains."""

    number: int
    text: str
    ids: list[int]
    prefix: list[int]
    terms: list[list[int]]

    @property
    def shape(self) -> tuple[int, int]:
        """What all texts of a batch have in common: tokens of the prefix, and tokens of the terms."""
        return len(self.prefix), sum(map(len, self.terms))


@dataclass(frozen=True)
class _Pair:
    """A text, the values of its placeholders, and how the model reads the text and its given translation."""

    text: str
    values: tuple[str, ...]
    source: str
    target: str
    source_ids: list[int]
    target_ids: list[int]


def _require_device(name: str | None) -> None:
    """Refuses a wrong name before anything is loaded."""
    from vanilla_transformer.hub.loading import find_device

    find_device(name)


def _load_tokenizers(name: str | Path, **options: Any) -> "tuple[AnyTokenizer, AnyTokenizer | None]":
    """Loads the tokenizers of a model, for every engine alike: without transformers where that is possible."""
    if tokenizers := read_tokenizers(name, **options):
        return tokenizers
    require_torch(f"The tokenizer of {name}")
    from vanilla_transformer.hub.loading import load_tokenizers

    return load_tokenizers(name, **options)


def _load_same_tokenizers(
    names: Sequence[str | Path], **options: Any
) -> "tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase | None]":
    """Loads the tokenizers of the first model, and refuses other models with other vocabularies."""
    from vanilla_transformer.hub.loading import load_tokenizers

    first = load_tokenizers(names[0], **options)
    for name in names[1:]:
        for side, other in zip(first, load_tokenizers(name, **options), strict=True):
            if (side and side.get_vocab()) != (other and other.get_vocab()):
                raise ValueError(
                    f"{name} has another vocabulary than {names[0]}: an ensemble needs models that were trained with "
                    "the same tokenizer."
                )
    return first


@dataclass(frozen=True)
class Request:
    """A text, the beginning of its translation, the terms that it must contain, the languages of both, and how the
    text's was found."""

    text: str
    prefix: str | None
    glossary: Glossary
    languages: Languages
    detected: Detection | None = None

    @property
    def is_unchanged(self) -> bool:
        """Whether the text is in the target language."""
        return is_unchanged(self.languages)


def require_several(texts: Iterable[str]) -> None:
    """Refuses anything but several texts."""
    if isinstance(texts, str):
        raise ValueError("translate() takes several texts: put the one in brackets, or call translator(text).")
    if isinstance(texts, Mapping | bytes) or not isinstance(texts, Iterable):
        raise ValueError(f"{texts!r:.50} is a {type(texts).__name__}: give a text, or a list of texts.")


def requests_of(
    texts: Iterable[str],
    prefix: str | Iterable[str | None] | None,
    glossary: GlossaryOption | Iterable[GlossaryOption],
    source_lang: str | Iterable[str | None] | None,
    target_lang: str | Iterable[str | None] | None,
) -> Iterator[Request]:
    """Puts a prefix, a glossary and the given languages with each text."""
    if isinstance(glossary, Glossary | Mapping | None):
        glossary = _as_glossary(glossary)  # once for all texts
    number = _length_of(texts)
    with_prefix = _paired(texts, prefix, str, "prefixes", number)
    with_terms = _paired(with_prefix, glossary, Glossary, "glossaries", number)
    with_source = _paired(with_terms, source_lang, str, "source languages", number)
    with_all = _paired(with_source, target_lang, str, "target languages", number)
    return (
        Request(text, start, _as_glossary(terms), Languages(source, target))
        for (((text, start), terms), source), target in with_all
    )


def _paired(
    items: Iterable[Any], given: Any, single: type, name: str, number: int | None
) -> Iterator[tuple[Any, Any]]:
    """Pairs each item with what is given: one for all, or one for each."""
    if given is None or isinstance(given, single):
        return zip(items, repeat(given), strict=False)
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ValueError(f"{given!r:.50} can't be the {name}: give one, or one (or None) for each text.")
    others = _length_of(given)
    if None not in (number, others) and number != others:
        raise ValueError(f"There are {number} texts but {others} {name}: give one (or None) for each text.")
    return zip(items, given, strict=True)


def _as_glossary(glossary: GlossaryOption) -> Glossary:
    return glossary if isinstance(glossary, Glossary) else Glossary(glossary or {})


def _require_sentences(*, n_best: int, prefix: Any, **kept: bool) -> None:
    """Refuses options that have no meaning for several sentences at once."""
    for name, is_given in {"n_best": n_best != 1, "prefix": prefix is not None, **kept}.items():
        if is_given:
            raise ValueError(f"{name} is for single sentences: leave it out, or set split_sentences to False.")


def _joined(pieces: Pieces, translations: Sequence[Hypothesis], language: str | None) -> Hypothesis:
    """Puts the translations of pieces together; the score is the sum of theirs."""
    text = pieces.join([translation.text for translation in translations], language)
    scores = [translation.score for translation in translations if translation.score is not None]
    missing = tuple(value for translation in translations for value in translation.not_copied)
    whole = Hypothesis(
        text,
        sum(scores) if len(scores) == len(translations) else None,
        not_copied=tuple(dict.fromkeys(missing)),
        detected=translations[0].detected,
        unchanged=translations[0].unchanged,
    )
    if translations[0].words is None:
        return whole
    return replace(
        whole,
        tokens=tuple(token for each in translations for token in each.tokens),
        log_probabilities=tuple(value for each in translations for value in each.log_probabilities or ()),
        words=tuple(word for each in translations for word in each.words or ()),
        is_calibrated=translations[0].is_calibrated,
    )


def _length_of(items: Iterable[Any]) -> int | None:
    """Returns the number of items; `None` for an iterator."""
    return len(items) if isinstance(items, Sized) else None


def _require_number(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r} must be at least 1.")


def _require_pair(numbered: tuple[int, tuple[str, str]]) -> tuple[int, tuple[str, str]]:
    number, pair = numbered
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"Pair {number} is {pair!r:.50}: score() takes pairs of a text and its translation.")
    return numbered


def _require_text(number: int, text: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"Text {number} is {text!r:.50}, a {type(text).__name__}: only strings can be translated.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Text {number} is not Unicode text ({error.reason}): read it with its own encoding."
        ) from error


def _without_impossible_terms(
    sources: Sequence[_Source], scores: list[float] | None, number: int
) -> dict[int, _Source]:
    """Returns the texts, by index, whose terms no translation contains, without these terms. They do not fit into the
    longest translation, or the model may not write them. Without terms, it is the model that is broken."""
    without = {}
    for index, (source, best) in enumerate(zip(sources, (scores or [])[::number], strict=scores is not None)):
        if math.isfinite(best):
            continue
        if not source.terms:
            raise ValueError(
                f"No translation of text {source.number} has a probability that is a number: the model's weights are "
                "broken, or numbers of its type overflow (use dtype=torch.float32)."
            )
        logger.warning(
            f"Text {source.number} is translated without its terms of the glossary: no translation of it can contain "
            f"all their {source.shape[1]} tokens."
        )
        without[index] = replace(source, terms=[])
    return without


def _readable_tokens(tokenizer: "AnyTokenizer", ids: list[int]) -> tuple[str, ...]:
    """Returns the text of each token, or what stands for it if it has no text: a mark, or its name."""
    with TOKENIZING:
        names = [tokenizer.convert_ids_to_tokens(token_id) for token_id in ids]
        return tuple(
            tokenizer.decode([token_id]).strip() or ByteLevel().decode([name]).strip() or name
            for token_id, name in zip(ids, names, strict=True)
        )


@cache
def _warn_once(message: str) -> None:
    logger.warning(message)


def _bar(show: bool, **options: Any) -> Any:
    """A progress bar, or nothing that looks like one."""
    if not show:
        return _NoBar()
    from tqdm.auto import tqdm

    return tqdm(**options)


class _NoBar(nullcontext):
    def update(self, number: int) -> None:
        """Shows nothing."""


__all__ = ["Hypothesis", "Request", "TranslationProbability", "Translator", "requests_of"]
