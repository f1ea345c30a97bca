"""Decoding in CTranslate2, a C++ engine that is several times as fast as torch on a CPU.

    translator = Translator.from_pretrained("runs/demo/model", backend="ctranslate2", quantization="int8")

It runs a folder that `vanilla convert ctranslate2` wrote. Any other model is converted once, and kept in the user's
cache. Neither this engine nor the conversion of this package's models needs torch and transformers.

The engine's beam search ends when a number of translations are finished, torch's when no unfinished one can win. So
twice `num_beams` finished translations are requested (`patience`) and ranked here by the length penalty of
`beam_search`. Where torch might go on for longer, the search is repeated to the length limit.
"""

import ctypes
import json
import logging
import math
import os
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args
from weakref import WeakSet

import numpy as np

from vanilla_transformer.converters.converted_folder import (
    convert,
    convert_in_memory,
    kept_folder,
    require_convertible,
)
from vanilla_transformer.converters.supported_models import require_quantization
from vanilla_transformer.converters.to_ctranslate2 import Quantization, require_ctranslate2, table_length
from vanilla_transformer.hub.saved_files import CONFIG, find_model, read_config, read_generation_config, read_record
from vanilla_transformer.models.search_options import LIBRARY_DEFAULTS, BeamSearchOptions, SearchOptions

from .engine import Attention, Generated, TokenIds
from .hardware import number_of_threads


if TYPE_CHECKING:  # an optional dependency, and those that this engine does not need
    from ctranslate2 import TranslationResult
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


logger = logging.getLogger(__name__)

_OPEN_BACKENDS: "WeakSet[CTranslate2Backend]" = WeakSet()
_ENGINE_LOCK = threading.Lock()  # of the module: a backend with a lock could not be pickled

# Options of `generate` and the engine's names for them. The engine's options against repetition are left out: they
# change logits rather than log-probabilities, and so all scores.
ENGINE_NAMES = {
    "min_new_tokens": "min_decoding_length",
    "temperature": "sampling_temperature",
    "top_k": "sampling_topk",
    "top_p": "sampling_topp",
}
# Options that `CTranslate2Backend.generate` implements itself, beside those of the search.
OWN_OPTIONS = ("max_new_tokens", "max_length", "early_stopping")
# Finished translations that the first search of a text waits for, in beams; and the length penalty up to which this is
# usually enough. If too few translations finish after the best one, or with a higher penalty, a search goes on to the
# length limit: it has seen all that torch's search sees.
PATIENCE = 2
HIGHEST_ALPHA = {"gnmt": 1.0, "length": 0.5}
# Not 0, with which the engine would end when its best hypothesis ends. The penalty is applied in `_ranked`.
NO_PENALTY = 1e-9
FOR_SAMPLES = ("num_beams", "length_penalty")
# Settings of a `generation_config` that change translations and that the engine does not have.
IGNORED_SETTINGS = (
    *("repetition_penalty", "no_repeat_ngram_size", "encoder_repetition_penalty", "encoder_no_repeat_ngram_size"),
    *("sequence_bias", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "min_length"),
    *("exponential_decay_length_penalty", "min_new_tokens", "temperature", "top_k", "top_p"),
)


class CTranslate2Backend:
    """Decodes with a model that was converted for CTranslate2.

    Args:
        folder: The converted model.
        config: The config of the model that was converted.
        generation_config: Its decoding settings.
        device: `cpu`, with OMP_NUM_THREADS threads or one for each core, or a GPU, such as `cuda:1`.
    """

    name: ClassVar[str] = "ctranslate2"
    title: ClassVar[str] = "CTranslate2"
    quantizations: ClassVar[tuple[str, ...]] = get_args(Quantization)

    def __init__(
        self,
        folder: str | Path,
        config: Any,
        generation_config: Any,
        device: str = "cpu",
        positions: int | None = None,
    ):
        _warn_about_settings(generation_config)
        self.config, self.generation_config = config, generation_config
        self.longest_input: int | None = positions or table_length(config)
        self.device = device
        self.folder: Path | None = Path(folder)
        self._files: dict[str, bytes] = {}  # the converted model, if its folder is gone
        self._engines: dict[bool, Any] = {}
        self._require_engine()
        vocabularies = {
            path.name.split("_")[0]: json.loads(path.read_text("utf-8"))
            for path in Path(folder).glob("*_vocabulary.json")
        }
        self.source_tokens: list[str] = vocabularies.get("source") or vocabularies["shared"]
        self.target_tokens: list[str] = vocabularies.get("target") or vocabularies["shared"]
        self.target_ids = {token: token_id for token_id, token in enumerate(self.target_tokens)}

    @classmethod
    def from_model(
        cls,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        target_tokenizer: "PreTrainedTokenizerBase | None" = None,
        *,
        quantization: str = "float32",
        device: str | None = None,
    ) -> "CTranslate2Backend":
        """Converts a model in memory.

        Args:
            model: The model.
            tokenizer: Its tokenizer, or the source's.
            target_tokenizer: The target's, for separate vocabularies.
            quantization: Type of the weights.
            device: Where to run; where the model is by default.
        """
        require_convertible(model.config)
        with tempfile.TemporaryDirectory() as folder:
            convert_in_memory(model, tokenizer, target_tokenizer, folder, quantization=quantization)
            backend = cls(folder, model.config, model.generation_config, device or str(model.device))
            backend.folder, backend._files = None, _files_of(folder)
        return backend

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, *, device: str | None = None, quantization: str = "float32", **options: Any
    ) -> "CTranslate2Backend":
        """Loads a converted model, or the one that the user's cache has of a model, or converts the model.

        Args:
            name_or_path: Folder, or name on the Hub: a converted model, this package's model or MarianMT.
            device: Where to run; a GPU if there is one.
            quantization: Type of the weights.
            options: Those of `from_pretrained` that say where a model of the Hub is.
        """
        _refuse_torch_options(options)
        require_ctranslate2()
        where = find_engine_device(device)
        require_quantization(quantization, cls.quantizations)
        if record := read_record(name_or_path):
            if quantization not in ("float32", record["quantization"]):
                raise ValueError(
                    f"{name_or_path} was converted with quantization={record['quantization']!r}, not "
                    f"{quantization!r}: leave it out, or convert the model again."
                )
            return cls._from_folder(Path(find_model(name_or_path)), where)
        require_convertible(read_config(name_or_path, **options))
        try:
            kept = kept_folder(name_or_path, quantization, **options)
            try:
                return cls._from_folder(kept, where)
            except (KeyError, RuntimeError, ValueError):  # it can't be read
                return cls._from_folder(kept_folder(name_or_path, quantization, again=True, **options), where)
        except OSError as error:
            logger.warning(f"The user's cache can't be written ({error}): the model is converted at each start.")
        with tempfile.TemporaryDirectory() as folder:
            convert(name_or_path, folder, quantization=quantization, **options)
            backend = cls._from_folder(Path(folder), where)
            backend.folder, backend._files = None, _files_of(folder)
        return backend

    @classmethod
    def _from_folder(cls, folder: Path, device: str) -> "CTranslate2Backend":
        config = read_config(folder)
        positions = (read_record(folder) or {}).get("positions")
        return cls(folder, config, read_generation_config(folder, config), device, positions)

    # --- the engine ---

    def _require_engine(self, *, apart: bool = False) -> Any:
        """Returns the engine, and opens it if this process has none yet.

        Args:
            apart: Whether each thread translates sentences of its own, or all threads share the work on each.
        """
        with _ENGINE_LOCK:
            if apart not in self._engines:
                threads = number_of_threads()
                self._engines[apart] = require_ctranslate2().Translator(
                    str(self.folder or "in memory"),
                    device=self.device.partition(":")[0],
                    device_index=int(self.device.partition(":")[2] or 0),
                    inter_threads=threads if apart else 1,
                    intra_threads=1 if apart else threads,
                    files=None if self.folder else self._files,
                )
                _OPEN_BACKENDS.add(self)
            return self._engines[apart]

    def _shared_out(self, sentences: int) -> dict[str, int]:
        """Returns the option that gives each thread its part of many sentences; none if there are few, or a GPU.

        Threads that work apart make two cores 1.7 to 1.9 times as fast as one, those that share 1.1 to 1.7 times. A
        single sentence is faster where they share.
        """
        threads = number_of_threads()
        if self.device != "cpu" or threads == 1 or sentences < 2 * threads:
            return {}
        return {"max_batch_size": -(-sentences // threads)}

    def __getstate__(self) -> dict[str, Any]:
        """Returns what pickle writes: the converted model itself. Where it is read, its folder may not exist."""
        files = _files_of(self.folder) if self.folder else self._files
        return {**vars(self), "_engines": {}, "folder": None, "_files": files}

    @property
    def model(self) -> "CTranslate2Backend":
        """This object: it has the `config` and the `generation_config` of the model."""
        return self

    def set_seed(self, seed: int) -> None:
        """Starts the engine again: its threads take the seed when they start, and never again."""
        require_ctranslate2().set_random_seed(seed)
        with _ENGINE_LOCK:
            self._engines = {}
        self._require_engine()

    def require_options(self, options: dict[str, Any], *, sample: bool = False, glossary: bool = False) -> None:
        """Refuses options of `generate` that the engine does not have."""
        if options.get("early_stopping", False) not in (True, False):
            raise ValueError(
                f"early_stopping={options['early_stopping']!r}: CTranslate2 has True and False. Leave it out, or "
                "leave out backend."
            )
        known = (*ENGINE_NAMES, *OWN_OPTIONS, *(FOR_SAMPLES if sample else ()))
        for name in [*options, *(["glossary"] if glossary else [])]:
            if name not in known:
                of_search = (option.name for option in fields(BeamSearchOptions))
                raise ValueError(
                    f"CTranslate2 lacks the option {name}: leave it out, or leave out backend. It has "
                    f"{', '.join((*of_search, *OWN_OPTIONS, *ENGINE_NAMES))}."
                )

    def require_support(self, call: str) -> None:
        """Refuses the attention of every layer and head: the engine returns one matrix, by `attend()`."""
        if call == "attention=True":
            raise ValueError(f"CTranslate2 does not support {call}: make a Translator without backend='ctranslate2'.")

    def score(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[list[float]]:
        """Returns the log-probability of each token of each target, given the source and the tokens before it."""
        # The engine adds the first token, and the end of sentence with its own probability.
        scored = [target[1:-1] if target[-1] == self.config.eos_token_id else target[1:] for target in targets]
        self._require_positions(sources, [ids[:-1] for ids in targets])
        shared_out = self._shared_out(len(sources))
        results = self._require_engine(apart=bool(shared_out)).score_batch(
            [[self.source_tokens[token_id] for token_id in source] for source in sources],
            [[self.target_tokens[token_id] for token_id in ids] for ids in scored],
            max_input_length=0,
            **shared_out,
        )
        return [result.log_probs[: len(target) - 1] for result, target in zip(results, targets, strict=True)]

    def attend(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[Attention]:
        """Returns one matrix for each pair: that of the head that learned word links, or the mean of the heads of the
        last decoder layer but one."""
        self._require_positions(sources, targets)
        matrices = []
        for source, target in zip(sources, targets, strict=True):
            if len(source) == 1:  # an empty text, which the engine does not decode: its only token has all weight
                matrices.append(np.ones((len(target), 1), np.float32))
                continue
            (result,) = self._translate(
                [[self.source_tokens[token_id] for token_id in source]],
                [[self.target_tokens[token_id] for token_id in target[1:]]],  # forced; the engine adds the first token
                beam_size=1,
                max_decoding_length=len(target),
                return_attention=True,
            )
            matrices.append(np.array(result.attention[0], np.float32)[: len(target)])
        return [Attention(None, None, matrix[None, None], matrix) for matrix in matrices]

    def _require_positions(self, *sequences: Sequence[TokenIds]) -> None:
        """Refuses sequences for which the engine would fail with an error of its own."""
        longest = max((len(ids) for rows in sequences for ids in rows), default=0)
        if self.longest_input is not None and longest > self.longest_input:
            raise ValueError(
                f"CTranslate2 has {self.longest_input} positions for this model, too few for {longest} tokens: "
                "shorten the text, or leave out backend."
            )

    def generate(
        self,
        sources: Sequence[TokenIds],
        prefixes: Sequence[TokenIds],
        *,
        search: SearchOptions | None,
        num_return_sequences: int = 1,
        num_beams: int = 1,
        max_new_tokens: int | None = None,
        max_length: int | None = None,
        **options: Any,
    ) -> Generated:
        """Translates a batch. Samples depend on `set_seed`, not on torch's seed."""
        assert isinstance(search, BeamSearchOptions | None)
        sample = search is None
        self.require_options(options, sample=sample)
        given = len(prefixes[0]) - 1  # tokens of the prefix after the decoder's first token
        longest = self._max_new_tokens(given, max_new_tokens, max_length)
        limits = [longest if search is None else min(longest, search.longest(len(source))) for source in sources]
        texts = [[self.source_tokens[token_id] for token_id in source] for source in sources]
        starts = [[self.target_tokens[token_id] for token_id in prefix[1:]] for prefix in prefixes]
        stops_early = bool(options.pop("early_stopping", False))
        options = _engine_options(options, given, sample)
        if search is None:
            number = {"beam_size": num_beams, "num_hypotheses": max(num_beams, num_return_sequences)}
            results = self._translate(texts, starts, max_decoding_length=given + longest, **number, **options)
        else:
            results = self._search(limits, texts, starts, search, num_return_sequences, stops_early, options)
        ranked = [
            hypothesis
            for prefix, result in zip(prefixes, results, strict=True)
            for hypothesis in self._ranked(result, prefix[0], given, num_return_sequences, search)
        ]
        scores = np.array([score for score, _ in ranked], np.float32).tolist()  # as in torch
        return Generated([ids for _, ids in ranked], None if sample else scores)

    def _max_new_tokens(self, given: int, max_new_tokens: int | None, max_length: int | None) -> int:
        """Returns the longest translation of a batch, without the `given` tokens of its prefix."""
        if max_new_tokens is not None:
            longest = max_new_tokens
        elif max_length is not None:
            longest = max(max_length - given - 1, 1)
        else:
            raise ValueError("CTranslate2 needs a limit: give max_new_tokens or max_length.")
        if self.longest_input is not None and given + longest > self.longest_input:
            raise ValueError(
                f"CTranslate2 has {self.longest_input} positions for this model, too few for {given} tokens of a "
                f"prefix and {longest} new ones: shorten them, or leave out backend."
            )
        return longest

    def _search(
        self,
        limits: list[int],
        sources: list[list[str]],
        prefixes: list[list[str]],
        search: BeamSearchOptions,
        wanted: int,
        stops_early: bool,
        options: dict[str, Any],
    ) -> "list[TranslationResult]":
        """Searches each source within its limit of new tokens, as long as torch's search could find a better one.

        The engine has one limit and one patience for a batch. So all sources are searched briefly with the largest
        limit first. A source whose result is not certain is searched again, to its own limit.
        """
        given, beams = len(prefixes[0]), search.num_beams
        is_brief = stops_early or beams == 1
        results: list[Any] = [None] * len(sources)

        def translate(rows: list[int], limit: int, patience: int) -> None:
            found = self._translate(
                [sources[row] for row in rows],
                [prefixes[row] for row in rows],
                beam_size=beams,
                patience=patience,
                num_hypotheses=beams * patience,
                max_decoding_length=given + limit,
                **options,
            )
            for row, result in zip(rows, found, strict=True):
                results[row] = result

        rows = list(range(len(sources)))
        if is_brief or (wanted == 1 and search.length_penalty <= HIGHEST_ALPHA[search.penalty]):
            translate(rows, max(limits), 1 if is_brief else PATIENCE)
            certain = partial(_is_certain, given=given, longest=max(limits), search=search, is_brief=is_brief)
            rows = [row for row in rows if not certain(results[row], limit=limits[row])]
        for limit in sorted({limits[row] for row in rows}):
            translate([row for row in rows if limits[row] == limit], limit, 1 if is_brief else limit)
        return results

    def _translate(
        self, sources: list[list[str]], prefixes: list[list[str]], **options: Any
    ) -> "list[TranslationResult]":
        # Samples stay on one engine: which thread takes which sentences is not repeatable.
        shared_out = {} if "sampling_topk" in options else self._shared_out(len(sources))
        return self._require_engine(apart=bool(shared_out)).translate_batch(
            sources,
            prefixes if any(prefixes) else None,
            length_penalty=NO_PENALTY,
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            **{"min_decoding_length": 0, **options, **shared_out},
        )

    def _ranked(
        self, result: "TranslationResult", start: int, given: int, number: int, search: BeamSearchOptions | None
    ) -> list[tuple[float, TokenIds]]:
        """Returns score and ids of the best hypotheses by the length penalty, exactly `number` of them."""
        hypotheses = []
        for tokens, log_probability in zip(result.hypotheses, result.scores, strict=True):
            length = max(len(tokens) - given, 1)
            score = log_probability if search is None else search.score(log_probability, length)
            hypotheses.append((score, [start, *(self.target_ids[token] for token in tokens)]))
        hypotheses.sort(key=lambda hypothesis: -hypothesis[0])
        hypotheses += [(-math.inf, [start])] * number  # the engine may find fewer
        return hypotheses[:number]


# --- options ---


def _is_certain(
    result: "TranslationResult", *, given: int, limit: int, longest: int, search: BeamSearchOptions, is_brief: bool
) -> bool:
    """Whether a longer search would hardly find a better translation: enough of them finished after the best one."""
    lengths = [len(tokens) - given for tokens in result.hypotheses]
    if is_brief:
        return max(lengths) <= limit
    if max(lengths) >= limit:
        return limit == longest  # then the search has ended by itself
    scores = [search.score(score, max(length, 1)) for score, length in zip(result.scores, lengths, strict=True)]
    best = lengths[scores.index(max(scores))]
    return sum(length > best for length in lengths) >= (search.num_beams + 1) // 2


def _engine_options(options: dict[str, Any], given: int, do_sample: bool) -> dict[str, Any]:
    """Returns options of `generate` under the engine's names."""
    if do_sample:
        options = {"top_k": 50, **options}  # the library's default
    renamed = {ENGINE_NAMES[name]: value for name, value in options.items() if name in ENGINE_NAMES}
    if "min_decoding_length" in renamed:
        renamed["min_decoding_length"] += given  # the engine counts the prefix too
    return renamed


def _refuse_torch_options(options: dict[str, Any]) -> None:
    """Refuses options of `from_pretrained` that are about a torch model."""
    if "device_map" in options:
        raise ValueError("device_map is for torch and takes the place of device: give device, or leave out backend.")
    for name in ("dtype", "torch_dtype"):
        if name in options:
            raise ValueError(f"{name}={options[name]!r}: CTranslate2 calls it quantization. Set that in its place.")


def ignored_settings(config: Any) -> list[str]:
    """Returns the decoding settings of a model that would change translations and have no effect in the engine."""
    settings = {name: getattr(config, name, None) for name in IGNORED_SETTINGS}
    ignored = [name for name, value in settings.items() if value not in (None, LIBRARY_DEFAULTS.get(name))]
    if any(len(ids) > 1 for ids in getattr(config, "bad_words_ids", None) or []):
        ignored.append("bad_words_ids of several tokens")
    return ignored


def _warn_about_settings(config: Any) -> None:
    if ignored := ignored_settings(config):
        logger.warning(
            f"CTranslate2 ignores what the model's generation_config sets: {', '.join(ignored)}. Leave out backend to "
            "decode with it."
        )


# --- devices and files ---


def find_engine_device(name: str | None) -> str:
    """Returns the device of that name, or without a name a GPU if the engine sees one."""
    gpus = require_ctranslate2().get_cuda_device_count()
    kind, _, index = (name or ("cuda" if gpus else "cpu")).partition(":")
    if kind not in ("cpu", "cuda") or not (index.isdecimal() or not index):
        raise ValueError(f"device={name!r} is unknown to CTranslate2: give cpu, cuda or cuda:1, for instance.")
    if kind == "cuda" and int(index or 0) >= gpus:
        raise ValueError(f"device={name!r}: CTranslate2 sees {gpus or 'no'} GPUs. Give cpu, or leave it out.")
    return f"{kind}:{index}" if index else kind


def _files_of(folder: str | Path) -> dict[str, bytes]:
    """Returns the content of the files that the engine reads."""
    names = ("model.bin", CONFIG, *(path.name for path in Path(folder).glob("*_vocabulary.json")))
    return {name: (Path(folder) / name).read_bytes() for name in names}


# --- forks ---


def _abandon_engines() -> None:
    """Makes the backends of a forked process open new engines: the threads of the old ones exist only in its parent.

    The old engines are never deleted. That would wait for their threads.
    """
    global _ENGINE_LOCK
    _ENGINE_LOCK = threading.Lock()  # another thread of the parent may hold the old one
    for backend in list(_OPEN_BACKENDS):
        for engine in backend._engines.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
        backend._engines = {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_engines)
