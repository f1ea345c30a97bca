"""Text in, translation out: `Translator`, and the pipeline task `vanilla-translation`.

    from vanilla_transformer import Translator

    translator = Translator.from_pretrained("runs/demo/model")
    translator("When does the train arrive in Berlin?")         # 'Wann kommt der Zug in Berlin an?'
    translator(["The cat sleeps.", "I am reading a book."])     # a list, in the order given
    Translator.from_pretrained("runs/demo/model", backend="ctranslate2", quantization="int8")   # several times as fast

Any encoder-decoder of the library that translates will do: this one, MarianMT, T5.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, repeat
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, Pipeline, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from . import beam_search
from .backends.ctranslate2 import CTranslate2Model, require_known
from .decoding_options import require_decoding, search_options
from .loading import LOADING_ERRORS, reason_of
from .quantization import quantized, require_quantization
from .tokenization_vanilla_transformer import load_tokenizers


logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class Hypothesis:
    """One translation of one text.

    Args:
        text: The translation.
        score: Log-probability divided by the length penalty; `None` where no search found it.
        source_tokens: The pieces of the source, as the model read them.
        tokens: The pieces of the translation.
        read_tokens: What the decoder read to write them: its first token, and all of `tokens` but the last.
        attention: What each head of each decoder layer looked at for each of `tokens`: [layers, heads, T, S].
        decoder_attention: The same over `read_tokens`: [layers, heads, T, T].
        encoder_attention: What each head of the encoder looked at for each of `source_tokens`: [layers, heads, S, S].
    """

    text: str
    score: float | None = None
    source_tokens: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    read_tokens: tuple[str, ...] = ()
    attention: torch.Tensor | None = None
    decoder_attention: torch.Tensor | None = None
    encoder_attention: torch.Tensor | None = None

    @property
    def alignment(self) -> list[tuple[int, int]]:
        """Pairs (source piece, target piece): for each piece of the translation what it attends to most.

        Taken from the last layer but one, which aligns best (Garg et al. 2019, "Jointly Learning to Align and
        Translate with Transformer Models"), heads averaged.
        """
        if self.attention is None:
            raise ValueError("No attention was kept: ask for it with attention=True.")
        if not self.tokens:
            return []  # of nothing to nothing
        layer = self.attention[max(len(self.attention) - 2, 0)]
        return [(int(place), row) for row, place in enumerate(layer.mean(0).argmax(-1))]


@dataclass(frozen=True)
class Score:
    """How likely a model finds a given translation: natural logarithm of its probability, end of sentence included."""

    log_probability: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return float(torch.tensor(-self.log_probability / self.tokens, dtype=torch.float64).exp())


class Translator:
    """Translates any number of texts with a model, in batches of similar length.

    Args:
        model: The model.
        tokenizer: Its tokenizer, or the source's.
        target_tokenizer: The target's, for separate vocabularies.
        max_tokens: Source tokens in a batch, padding included. More need more memory; a GPU likes more.
        window: Texts that are read ahead and sorted by length together. Results come back a window at a time.
        backend: What decodes: `"torch"`, or `"ctranslate2"`, a faster engine that must be installed.
        quantization: Type of the weights: `"float32"` for as they are, `"int8"`, and with CTranslate2 all of
            `export_ctranslate2.Quantization`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        max_tokens: int = 2048,
        window: int = 4096,
        backend: str = "torch",
        quantization: str = "float32",
    ):
        for name, value in (("max_tokens", max_tokens), ("window", window)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        if _is_ctranslate2(backend):
            model = CTranslate2Model.convert(model, tokenizer, target_tokenizer, quantization=quantization)
        else:
            model = quantized(model, quantization)
        self.model, self.tokenizer, self.target_tokenizer = model.eval(), tokenizer, target_tokenizer or tokenizer
        self.max_tokens, self.window = max_tokens, window

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        device: str | None = None,
        backend: str = "torch",
        quantization: str = "float32",
        **options,
    ) -> "Translator":
        """Loads model and tokenizers from a folder or the Hub.

        Args:
            name_or_path: Folder, or name on the Hub.
            device: Where to run; a GPU if there is one.
            backend: As above. CTranslate2 converts the model once and keeps the result beside its files.
            quantization: As above.
            options: Those of the class, and those of `from_pretrained` such as `dtype` and `revision`.
        """
        own = {name: options.pop(name) for name in ("max_tokens", "window") if name in options}
        in_ctranslate2 = _is_ctranslate2(backend)
        if "subfolder" in options:
            raise ValueError(f"subfolder={options['subfolder']!r}: give the folder itself as the model's place.")
        if "device_map" in options and (device or in_ctranslate2):
            raise ValueError("device_map is for torch and takes the place of device: give one of them.")
        device = None if "device_map" in options else find_device(device)
        for name in ("dtype", "torch_dtype"):
            if in_ctranslate2 and name in options:
                raise ValueError(f"{name}={options[name]!r}: where CTranslate2 decodes it is called quantization.")
        if not in_ctranslate2:
            require_quantization(quantization)
            if quantization != "float32":
                options.setdefault("dtype", torch.float32)  # whatever the file has: it is rounded from there
        try:
            tokenizers = load_tokenizers(name_or_path, **{k: v for k, v in options.items() if k in HUB_OPTIONS})
            if not in_ctranslate2:
                model, found = AutoModelForSeq2SeqLM.from_pretrained(name_or_path, output_loading_info=True, **options)
        except LOADING_ERRORS as error:
            raise ValueError(
                f"{name_or_path} can't be loaded ({reason_of(error)}): give a folder with a model and its tokenizer, "
                "or a name on the Hub."
            ) from error
        if in_ctranslate2:
            types = {"quantization": quantization, "device": device}
            return cls(
                CTranslate2Model.from_pretrained(name_or_path, *tokenizers, **types, **options), *tokenizers, **own
            )
        for name in sorted(found["missing_keys"]):  # the library would make them up
            raise ValueError(f"{name_or_path} has no weights {name}: its files are not those of one whole model.")
        return cls(model if device is None else model.to(device), *tokenizers, quantization=quantization, **own)

    def __call__(self, texts: str | Iterable[str], **options) -> str | list[str]:
        """The best translation of each text, as text; the options are those of `translate`."""
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
        progress: bool = False,
        **generation,
    ) -> Iterator[list[Hypothesis]]:
        """The translations of each text, best first, in the order of the texts.

        An empty text has the empty translation, whatever the prefix. One that is longer than the model can read is
        cut, and a warning says so.

        Args:
            texts: A list, a `datasets` column, or any iterator: no more than a window of it is in memory.
            n_best: How many translations of each text, at most `num_beams`.
            prefix: What translations must begin with: the same for all, or one (or `None`) for each text.
            sample: Draw translations at random instead of searching for the best.
            attention: Whether to keep what encoder and decoder attended to.
            progress: Whether to show a progress bar.
            generation: Options of `generate`, on top of the model's own `num_beams` and `length_penalty` or, where its
                `generation_config` has none, the paper's (4 and 0.6); those of `beam_search`; with `sample`, for
                instance `temperature` and `top_k`.
        """
        if isinstance(texts, str):
            raise ValueError("translate() takes several texts: put the one in brackets, or call translator(text).")
        if n_best < 1:
            raise ValueError(f"n_best={n_best} must be at least 1.")
        if "num_return_sequences" in generation:
            raise ValueError("num_return_sequences is n_best here: set that.")
        require_decoding(*map(generation.get, ("num_beams", "length_penalty", "max_extra_tokens")))
        if sample:
            options = {**generation, "do_sample": True, "num_beams": generation.get("num_beams") or 1}
            nothing = Hypothesis("", None)
            if options["num_beams"] == 1:
                options["length_penalty"] = 1.0  # it does nothing, and the library would warn of any other
        else:
            options = {
                **search_options(self.model.generation_config, **generation),
                "custom_generate": beam_search.search,
            }
            nothing = Hypothesis("", 0.0)
            if n_best > options["num_beams"]:
                raise ValueError(f"n_best={n_best} is more than num_beams={options['num_beams']} can find.")
        options["num_return_sequences"] = n_best
        if isinstance(self.model, CTranslate2Model):
            require_known(options)
        if attention:
            self._require_torch("attention=True")
            nothing = replace(nothing, attention=torch.zeros(0, 0, 0, 0))
        same_for_all = prefix is None or isinstance(prefix, str)
        total, prefixes = (len(each) if hasattr(each, "__len__") else None for each in (texts, prefix))
        if not same_for_all and None not in (total, prefixes) and total != prefixes:
            raise ValueError(f"There are {total} texts but {prefixes} prefixes: give one (or None) for each text.")
        prefixed = zip(texts, repeat(prefix) if same_for_all else prefix, strict=not same_for_all)
        bar = logging.tqdm(total=total, desc="translating", unit=" texts", disable=not progress)
        # Only the work itself waits for the first result to be asked for: mistakes are told at once.
        return self._translations(prefixed, options, nothing, attention, bar)

    def _translations(
        self, prefixed: Iterable[tuple[str, str | None]], options: dict, nothing: Hypothesis, attention: bool, bar
    ) -> Iterator[list[Hypothesis]]:
        """Translates texts with their prefixes, a window at a time."""
        numbered = enumerate(prefixed, start=1)
        with bar:
            while window := list(islice(numbered, self.window)):
                sources = [self._source(number, text, prefix) for number, (text, prefix) in window]
                results: list[list[Hypothesis]] = [[nothing] * options["num_return_sequences"] for _ in sources]
                for batch in self._batches(sources):
                    found = self._translate_batch([sources[place] for place in batch], options, attention)
                    for place, hypotheses in zip(batch, found, strict=True):
                        results[place] = hypotheses
                    bar.update(len(batch))
                bar.update(sum(source is None for source in sources))
                yield from results

    def score(self, pairs: Iterable[tuple[str, str]], *, progress: bool = False) -> Iterator[Score]:
        """How likely the model finds the target of each (source, target) as its translation, in the order given."""
        self._require_torch("score()")
        return self._scores(pairs, logging.tqdm(desc="scoring", unit=" pairs", disable=not progress))

    def _scores(self, pairs: Iterable[tuple[str, str]], bar) -> Iterator[Score]:
        """Scores pairs, a window at a time."""
        numbered = enumerate(pairs, start=1)
        with bar:
            while window := list(islice(numbered, self.window)):
                encoded = [self._pair(number, source, target) for number, (source, target) in window]
                results: dict[int, Score] = {}
                for batch in self._batches([max(pair, key=len) for pair in encoded]):
                    results |= zip(batch, self._score_batch([encoded[place] for place in batch]), strict=True)
                    bar.update(len(batch))
                yield from (results[place] for place in range(len(encoded)))

    @torch.no_grad()
    def attend(self, source: str, target: str) -> Hypothesis:
        """A given translation with what encoder and decoder attend to, as if the search had written it."""
        self._require_torch("attend()")
        ids, written = self._pair(1, source, target)
        targets = [[self._start_token(), *written]]
        return self._with_attention([Hypothesis(target)], self._pad([ids]), targets, number=1)[0]

    def _require_torch(self, what: str) -> None:
        if isinstance(self.model, CTranslate2Model):
            raise ValueError(f"CTranslate2 has nothing for {what}: make a Translator without backend='ctranslate2'.")

    # --- from text to batches ---

    def _source(self, number: int, text: str, prefix: str | None) -> "_Source | None":
        """The ids of a text and of the beginning of its translation; None for an empty text."""
        _require_text(number, text)
        if not text.strip():
            return None
        beginning = [self._start_token()]
        if prefix:
            _require_text(number, prefix)
            beginning += self.target_tokenizer(text_target=prefix, add_special_tokens=False)["input_ids"]
        return _Source(number, self._encode(number, text), beginning)

    def _pair(self, number: int, source: str, target: str) -> tuple[list[int], list[int]]:
        for text in (source, target):
            _require_text(number, text)
        written = self.target_tokenizer(text_target=target)["input_ids"]
        limit = longest_sequence(self.model)
        if limit is not None and len(written) > limit:
            raise ValueError(
                f"Translation {number} has {len(written)} tokens; the model writes {limit}: shorten or drop it."
            )
        return self._encode(number, source), written

    def _encode(self, number: int, text: str) -> list[int]:
        ids = self.tokenizer(text)["input_ids"]
        limit = longest_sequence(self.model)
        if limit is not None and len(ids) > limit:
            reader = "CTranslate2" if isinstance(self.model, CTranslate2Model) else "the model"
            logger.warning(f"Text {number} has {len(ids)} tokens; {reader} reads {limit}: the rest is cut off.")
            ids = [*ids[: limit - 1], ids[-1]]  # the end of sentence stays
        return ids

    def _batches(self, sources: Sequence) -> Iterator[list[int]]:
        """The places of the texts, similar lengths together, the longest first: what needs too much memory fails at
        once. Beginnings of different lengths do not go together."""
        places = [place for place, source in enumerate(sources) if source is not None]
        places.sort(key=lambda place: (_beginning(sources[place]), len(sources[place])), reverse=True)
        batch: list[int] = []
        for place in places:
            longest = len(sources[batch[0]]) if batch else len(sources[place])
            full = (len(batch) + 1) * longest > self.max_tokens
            if batch and (full or _beginning(sources[place]) != _beginning(sources[batch[0]])):
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    # --- from batches to text ---

    @torch.no_grad()
    def _translate_batch(self, sources: "list[_Source]", options: dict, attention: bool) -> list[list[Hypothesis]]:
        inputs = self._pad([source.ids for source in sources])
        beginnings = torch.tensor([source.beginning for source in sources], device=self.model.device)
        if "max_new_tokens" not in options:
            room = self._room(inputs["input_ids"].shape[1], beginnings.shape[1], options)
            options = {"max_length": room, **options}
        if options.get("do_sample"):
            options = {
                name: value for name, value in options.items() if name != "max_extra_tokens"
            }  # only the search's
        output = self.model.generate(
            **inputs, decoder_input_ids=beginnings, return_dict_in_generate=True, use_cache=True, **options
        )
        number = options["num_return_sequences"]
        scores = getattr(output, "sequences_scores", None)
        scores = [None] * len(output.sequences) if scores is None else scores.tolist()
        for source, best in zip(sources, scores[::number], strict=True):
            if best is not None and not math.isfinite(best):
                raise ValueError(
                    f"No translation of text {source.number} has a probability that is a number: the model's weights "
                    "are broken, or numbers of its type overflow (dtype=torch.float32 has room)."
                )
        targets = [self._until_end(ids) for ids in output.sequences.tolist()]
        texts = self.target_tokenizer.batch_decode(targets, skip_special_tokens=True)
        hypotheses = [Hypothesis(text, score) for text, score in zip(texts, scores, strict=True)]
        if attention:
            hypotheses = self._with_attention(hypotheses, inputs, targets, number)
        return [hypotheses[row : row + number] for row in range(0, len(hypotheses), number)]

    def _with_attention(
        self, hypotheses: list[Hypothesis], inputs: dict, targets: list[list[int]], number: int
    ) -> list[Hypothesis]:
        """Reads the finished translations again, all tokens of them at once, and keeps what is attended to."""
        inputs = {name: tensor.repeat_interleave(number, dim=0) for name, tensor in inputs.items()}
        fed = self._pad([ids[:-1] for ids in targets])  # row t is what was looked at when token t + 1 was written
        with _eager(self.model):
            output = self.model(**inputs, decoder_input_ids=fed["input_ids"], output_attentions=True, use_cache=False)
        encoder, decoder, cross = (
            torch.stack(layers, dim=1)  # [B, layers, heads, T or S, T or S]
            for layers in (output.encoder_attentions, output.decoder_attentions, output.cross_attentions)
        )
        found = []
        for row, (hypothesis, ids) in enumerate(zip(hypotheses, targets, strict=True)):
            source = inputs["input_ids"][row][inputs["attention_mask"][row] == 1].tolist()
            s, t = len(source), len(ids) - 1  # without padding
            found.append(
                replace(
                    hypothesis,
                    source_tokens=_pieces(self.tokenizer, source),
                    tokens=_pieces(self.target_tokenizer, ids[1:]),
                    read_tokens=_pieces(self.target_tokenizer, ids[:-1]),
                    attention=cross[row, :, :, :t, :s].cpu(),
                    decoder_attention=decoder[row, :, :, :t, :t].cpu(),
                    encoder_attention=encoder[row, :, :, :s, :s].cpu(),
                )
            )
        return found

    @torch.no_grad()
    def _score_batch(self, pairs: list[tuple[list[int], list[int]]]) -> list[Score]:
        targets = self._pad([target for _, target in pairs])
        labels = targets["input_ids"]
        start = torch.full_like(labels[:, :1], self._start_token())
        logits = self.model(
            **self._pad([source for source, _ in pairs]), decoder_input_ids=torch.cat([start, labels[:, :-1]], dim=1)
        ).logits
        found = logits.float().log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)  # [B, T]
        totals = found.double().masked_fill(targets["attention_mask"] == 0, 0.0).sum(1).tolist()
        return [Score(total, len(target)) for total, (_, target) in zip(totals, pairs, strict=True)]

    def _pad(self, rows: list[list[int]]) -> dict[str, torch.Tensor]:
        """Ids and mask, padded on the right whatever the tokenizer's habit."""
        longest = max(map(len, rows))
        pad = self.model.config.pad_token_id
        ids = [[*row, *[pad] * (longest - len(row))] for row in rows]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        tensors = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}
        return {name: tensor.to(self.model.device) for name, tensor in tensors.items()}

    def _room(self, source_length: int, beginning: int, options: dict) -> int:
        """The longest translation of a batch, its beginning included: source plus 50, or as far as the model's
        positions go."""
        length = beginning + source_length + options.get("max_extra_tokens", 50)
        limit = longest_sequence(self.model)
        return length if limit is None else min(length, limit)

    def _until_end(self, ids: list[int]) -> list[int]:
        """Up to the end of sentence, or to the padding of one that has none."""
        ends = {self.target_tokenizer.eos_token_id, self.model.config.pad_token_id}
        stop = next((place for place, token in enumerate(ids) if place and token in ends), len(ids))
        return ids[: stop + (stop < len(ids) and ids[stop] == self.target_tokenizer.eos_token_id)]

    def _start_token(self) -> int:
        for config in (self.model.generation_config, self.model.config):
            if getattr(config, "decoder_start_token_id", None) is not None:
                return config.decoder_start_token_id
        raise ValueError("The model's config has no decoder_start_token_id: set it to the decoder's first token.")


HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token", "trust_remote_code")


@dataclass(frozen=True)
class _Source:
    """A text as the model reads it, and the beginning its translation must have."""

    number: int
    ids: list[int]
    beginning: list[int]

    def __len__(self) -> int:
        return len(self.ids)


def _beginning(source: "_Source | list[int]") -> int:
    return len(source.beginning) if isinstance(source, _Source) else 0


def _require_text(number: int, text: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"Text {number} is {text!r:.50}, a {type(text).__name__}: only strings can be translated.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Text {number} is not Unicode text ({error.reason}): read it with its own encoding."
        ) from error


def find_device(name: str | None) -> torch.device:
    """The device by name, or a GPU if there is one."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise ValueError(f"device={name!r} is unknown to torch: give cpu, cuda or cuda:1, for instance.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r}: this torch sees no GPU. Give cpu, or leave it out.")
    return device


def _is_ctranslate2(backend: str) -> bool:
    if backend not in ("torch", "ctranslate2"):
        raise ValueError(f"backend={backend!r} is unknown: choose torch or ctranslate2.")
    return backend == "ctranslate2"


def longest_sequence(model: PreTrainedModel | CTranslate2Model) -> int | None:
    """Tokens the model has positions for; None if there is no end to them."""
    if isinstance(model, CTranslate2Model):
        return model.positions
    if str(getattr(model.config, "position_encoding", "")).startswith("sinusoidal"):
        return None
    return getattr(model.config, "max_position_embeddings", None)


def _pieces(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> tuple[str, ...]:
    """Pieces as people read them: the text of each, or its name where it has none."""
    return tuple(tokenizer.decode([token]).strip() or tokenizer.convert_ids_to_tokens(token) for token in ids)


@contextmanager
def _eager(model: PreTrainedModel) -> Iterator[None]:
    """Only the eager attention hands out its weights."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


class TranslationPipeline(Pipeline):
    """`pipeline("vanilla-translation", model=...)`: texts in, `{"translation_text": ...}` out, as the library's
    translation pipeline gave them until transformers 5 dropped it.

    Options of `Translator.translate` go into the call; with `n_best` above 1 there is a list for each text. Batches
    are the translator's own, by tokens: the library's `batch_size` and `num_workers` are accepted and change nothing.

    Args:
        target_tokenizer: The target's, for a model object with separate vocabularies; else it is loaded from where the
            model came from.
    """

    _load_processor = _load_image_processor = _load_feature_extractor = False
    _load_tokenizer = True

    def __init__(self, *args, target_tokenizer: PreTrainedTokenizerBase | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        if getattr(self.model.config, "target_vocab_size", None) is not None and target_tokenizer is None:
            if not self.model.name_or_path:
                raise ValueError("The model has a target vocabulary of its own: give its target_tokenizer too.")
            commit = getattr(self.model.config, "_commit_hash", None)
            options = {"revision": commit} if commit else {}
            target_tokenizer = load_tokenizers(self.model.name_or_path, **options)[1]
        self.translator = Translator(self.model, self.tokenizer, target_tokenizer)

    def __call__(
        self, texts: str | Iterable[str], *, batch_size: int | None = None, num_workers: int | None = None, **options
    ):
        options = {**self._forward_params, **options}
        if isinstance(texts, str):
            return self.run_single(texts, {}, options, {})
        found = (self.postprocess({"hypotheses": each}) for each in self.translator.translate(texts, **options))
        return list(found) if isinstance(texts, list | tuple) else found  # an iterator stays one

    def _sanitize_parameters(self, **options):
        return {}, options, {}

    def preprocess(self, text: str) -> dict:
        return {"text": text}

    def _forward(self, inputs: dict, **options) -> dict:
        return {"hypotheses": next(self.translator.translate([inputs["text"]], **options))}

    def postprocess(self, outputs: dict) -> list[dict] | dict:
        found = [{"translation_text": each.text, "score": each.score} for each in outputs["hypotheses"]]
        return found if len(found) > 1 else found[0]
