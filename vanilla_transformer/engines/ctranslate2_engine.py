"""Decoding in CTranslate2, a C++ engine that is several times as fast as torch on a CPU.

    translator = Translator.from_pretrained("runs/demo/model", backend="ctranslate2", quantization="int8")

Neither this engine nor the conversion of this package's models needs torch and transformers. A model is converted
once. The converted model is kept beside the model's files, in the hidden folder `.ctranslate2`, or in the user's cache
if that folder can't be written. It is converted again when the model's files change.

The engine's beam search ends when a number of translations are finished, torch's when no unfinished one can win. So
twice `num_beams` finished translations are requested (`patience`) and ranked here by the length penalty of
`beam_search`. Where torch might go on for longer, the search is repeated to the length limit.
"""

import ctypes
import hashlib
import json
import logging
import math
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args
from weakref import WeakSet

import numpy as np

from vanilla_transformer.converters.saved_weights import find_weights
from vanilla_transformer.converters.supported_models import OURS, require_quantization
from vanilla_transformer.converters.to_ctranslate2 import (
    Quantization,
    can_export_saved,
    export,
    export_saved,
    require_ctranslate2,
    table_length,
)
from vanilla_transformer.hub.process_locks import LOADING
from vanilla_transformer.hub.saved_files import (
    CONFIG,
    HUB_OPTIONS,
    find_file,
    read_config,
    read_generation_config,
    read_object,
)
from vanilla_transformer.hub.saved_tokenizer import read_tokenizers
from vanilla_transformer.models.search_options import LIBRARY_DEFAULTS, BeamSearchOptions, SearchOptions
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_json

from .engine import Attention, Generated, TokenIds
from .hardware import number_of_threads, require_torch


if TYPE_CHECKING:  # an optional dependency, and those that this engine does not need
    from ctranslate2 import TranslationResult
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


logger = logging.getLogger(__name__)

CACHE_FOLDER, FINGERPRINT_FILE = ".ctranslate2", "made_from.json"
FORMAT = 3  # of a converted model; a change of this number converts every model again
_OPEN_BACKENDS: "WeakSet[CTranslate2Backend]" = WeakSet()
_ENGINE_LOCK = threading.Lock()  # of the module: a backend with a lock could not be pickled
CONVERTIBLE = (OURS, "marian")  # model types

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
    ):
        _warn_about_settings(generation_config)
        self.config, self.generation_config = config, generation_config
        self.longest_input: int | None = table_length(config)
        self.device = device
        self.folder: Path | None = Path(folder)
        self._files: dict[str, bytes] = {}  # the converted model, if its folder is gone
        self._engines: dict[bool, Any] = {}
        self._require_engine()
        vocabularies = {
            path.name.split("_")[0]: json.loads(path.read_text("utf-8")) for path in Path(folder).glob("*_voc*")
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
        _require_convertible(model.config)

        def write(folder: Path) -> None:
            _convert(model, tokenizer, target_tokenizer, folder, quantization)

        return cls._in_memory(write, model.config, model.generation_config, device or str(model.device))

    @classmethod
    def _in_memory(
        cls, write: "Callable[[Path], None]", config: Any, generation_config: Any, device: str
    ) -> "CTranslate2Backend":
        """Converts a model that is kept nowhere."""
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder))
            backend = cls(folder, config, generation_config, device)
            backend.folder, backend._files = None, _files_of(folder)
        return backend

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, *, device: str | None = None, quantization: str = "float32", **options: Any
    ) -> "CTranslate2Backend":
        """Loads the converted model that is kept beside a model's files, or converts the model.

        Args:
            name_or_path: Folder, or name on the Hub: this package's model or MarianMT.
            device: Where to run; a GPU if there is one.
            quantization: Type of the weights.
            options: Those of `from_pretrained` that say where a model of the Hub is.
        """
        _refuse_torch_options(options)
        require_ctranslate2()
        where = find_engine_device(device)
        require_quantization(quantization, cls.quantizations)
        config = read_config(name_or_path, **options)
        _require_convertible(config)
        generation_config = read_generation_config(name_or_path, config, **options)
        if config.model_type != OURS:
            config, generation_config = _load_with_library(name_or_path, options)
        model_folder = Path(str(find_file(name_or_path, CONFIG, **options))).parent
        places = [folder / quantization for folder in (model_folder / CACHE_FOLDER, user_cache(model_folder))]
        for converted in places:
            if _is_up_to_date(converted, model_folder):
                return cls(converted, config, generation_config, where)

        def write(folder: Path) -> None:
            _convert_files(name_or_path, config, generation_config, folder, quantization, options)

        for converted in places:
            try:
                _convert_and_keep(write, converted, model_folder)
                return cls(converted, config, generation_config, where)
            except OSError as error:
                reason = error
        logger.warning(f"{places[-1]} can't be written ({reason}): the model is converted at each start.")
        return cls._in_memory(write, config, generation_config, where)

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


# --- conversion ---


def find_engine_device(name: str | None) -> str:
    """Returns the device of that name, or without a name a GPU if the engine sees one."""
    gpus = require_ctranslate2().get_cuda_device_count()
    kind, _, index = (name or ("cuda" if gpus else "cpu")).partition(":")
    if kind not in ("cpu", "cuda") or not (index.isdecimal() or not index):
        raise ValueError(f"device={name!r} is unknown to CTranslate2: give cpu, cuda or cuda:1, for instance.")
    if kind == "cuda" and int(index or 0) >= gpus:
        raise ValueError(f"device={name!r}: CTranslate2 sees {gpus or 'no'} GPUs. Give cpu, or leave it out.")
    return f"{kind}:{index}" if index else kind


def user_cache(model_folder: Path) -> Path:
    """Returns where the converted model is kept if the folder of the model can't be written."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "huggingface"
    digest = hashlib.sha256(os.fsencode(model_folder.resolve())).hexdigest()[:16]
    return Path(os.environ.get("HF_HOME", default)) / "vanilla_transformer" / "ctranslate2" / digest


def _require_convertible(config: Any) -> None:
    if config.model_type not in CONVERTIBLE:
        raise ValueError(
            f"backend='ctranslate2' takes models of type {' and '.join(CONVERTIBLE)}, not "
            f"{config.model_type!r}: leave out backend."
        )


def _load_with_library(name_or_path: str | Path, options: dict[str, Any]) -> tuple[Any, Any]:
    """Loads config and decoding settings of a model of the library."""
    require_torch("A model of MarianMT")
    from vanilla_transformer.hub.loading import load_config, load_generation_config

    config = load_config(name_or_path, **options)
    return config, load_generation_config(name_or_path, config, **options)


def _convert_files(
    name_or_path: str | Path,
    config: Any,
    generation_config: Any,
    folder: Path,
    quantization: str,
    options: dict[str, Any],
) -> None:
    """Writes the converted model into a folder: from the model's files, or else by loading it in torch."""
    where = {name: value for name, value in options.items() if name in HUB_OPTIONS}
    tokenizers = read_tokenizers(name_or_path, **where)
    if tokenizers and can_export_saved(config) and find_weights(name_or_path, **where):
        tokenizer, target = tokenizers
        settings: dict[str, Any] = {"target_tokenizer": target, "quantization": quantization}
        export_saved(name_or_path, config, generation_config, tokenizer, folder, **settings, **where)
        return
    require_torch(f"{name_or_path} is not this package's model with a tokenizer.json in safetensors. Its conversion")
    from vanilla_transformer.converters.from_and_to_marian import load
    from vanilla_transformer.hub.loading import load_tokenizers

    model = load(name_or_path, config.model_type, **options)
    _convert(model, *load_tokenizers(name_or_path, **where), folder, quantization)


def _convert(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    target_tokenizer: "PreTrainedTokenizerBase | None",
    folder: str | Path,
    quantization: str,
) -> None:
    """Writes a model in memory into a folder. MarianMT becomes this package's model first."""
    from vanilla_transformer.converters.from_and_to_marian import from_marian

    vanilla = from_marian(model) if model.config.model_type == "marian" else model
    export(vanilla, tokenizer, folder, target_tokenizer=target_tokenizer, quantization=quantization)


def _convert_and_keep(write: "Callable[[Path], None]", converted: Path, model_folder: Path) -> None:
    """Keeps what `write` writes, with the fingerprint of the files it was made from.

    The fingerprint is left out if files of the model changed meanwhile: then the model is converted again next time.
    New files may have come from the Hub.
    """
    fingerprint = _fingerprint(model_folder)
    # Conversion may load the model in torch.
    with LOADING, whole_folder(converted, overwrite=True, wait=True) as folder:
        write(folder)
        contents = _digests(_paths_of_model(model_folder))
        current = _fingerprint(model_folder)
        if fingerprint.items() <= current.items():
            record = {"made_from": current, "contents": contents, "digests": _digests(_paths_in(folder))}
            write_json(folder / FINGERPRINT_FILE, record)


def _versions() -> dict[str, Any]:
    return {"format": FORMAT, "ctranslate2": require_ctranslate2().__version__}


def _fingerprint(model_folder: Path) -> dict[str, Any]:
    """Returns what a converted model depends on: the converters' versions, and size and times of the model's files.

    Programs can set the time of the last change (mtime), but not that of the inode (ctime).
    """
    stats = {path.relative_to(model_folder).as_posix(): path.stat() for path in _paths_of_model(model_folder)}
    times = {name: [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for name, stat in stats.items()}
    return {**_versions(), **times}


def _is_up_to_date(converted: Path, model_folder: Path) -> bool:
    """Whether a converted model is there, was made of the model's files, and is undamaged."""
    try:
        record = read_object(converted / FINGERPRINT_FILE)
        return _was_made_of(model_folder, record) and record["digests"] == _digests(_paths_in(converted))
    except (OSError, ValueError, KeyError):
        return False


def _was_made_of(model_folder: Path, record: dict[str, Any]) -> bool:
    """Whether the model's files are as recorded. A copy, as in an image, has other times: its content is compared."""
    return record["made_from"] == _fingerprint(model_folder) or (
        _versions().items() <= record["made_from"].items()
        and record["contents"] == _digests(_paths_of_model(model_folder))
    )


def _paths_of_model(model_folder: Path) -> list[Path]:
    patterns = ("*.json", "*.safetensors", "*.bin", "*.spm", f"{TARGET}/*.json")
    return sorted(path for pattern in patterns for path in model_folder.glob(pattern))


def _digests(paths: Sequence[Path]) -> list[str]:
    """Returns the SHA-256 of files. A damaged one could translate into plausible text."""
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}")
    return digests


def _files_of(folder: str | Path) -> dict[str, bytes]:
    """Returns the content of the files that the engine reads."""
    return {path.name: path.read_bytes() for path in _paths_in(folder)}


def _paths_in(folder: str | Path) -> list[Path]:
    return sorted(path for path in Path(folder).iterdir() if path.name != FINGERPRINT_FILE)


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
