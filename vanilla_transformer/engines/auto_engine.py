"""The fastest engine that gives torch's translations, chosen for each model and each call.

    translator = Translator.from_pretrained("runs/demo/model")        # backend="auto"
    translator.backend.describe()     # 'CTranslate2: the fastest installed engine with the translations of torch'

CTranslate2 decodes this package's models on a CPU where its search finds what torch's finds. Everything else is
torch's, which is loaded at the first call that needs it: samples, glossaries, attention, options that CTranslate2
lacks, long texts, and strong length penalties, for which its search would take longer. Where torch is not installed,
CTranslate2 decodes what it can and names what it can't.

A model in memory stays in torch: it may change, as in training.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from vanilla_transformer.converters.saved_weights import find_weights
from vanilla_transformer.converters.to_ctranslate2 import (
    Quantization,
    can_export_saved,
    longest_sequence_of,
    require_expressible,
)
from vanilla_transformer.hub.process_locks import LOADING
from vanilla_transformer.hub.saved_files import SavedConfig, read_config, read_generation_config
from vanilla_transformer.hub.saved_tokenizer import read_tokenizers
from vanilla_transformer.models.search_options import BeamSearchOptions, SearchOptions

from .ctranslate2_engine import (
    HIGHEST_ALPHA,
    CTranslate2Backend,
    find_engine_device,
    ignored_settings,
)
from .engine import Attention, Backend, Generated, TokenIds
from .hardware import missing_for_torch


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


logger = logging.getLogger(__name__)
FASTEST = "the fastest installed engine with the translations of torch"


class AutoBackend:
    """Decodes with CTranslate2, and with torch what CTranslate2 would not decode alike.

    Args:
        fast: The model in CTranslate2.
        load_in_torch: Loads it in torch.
        verbose: Whether to log as a warning, and not only as information, why torch is loaded.
    """

    name: ClassVar[str] = "auto"
    title: ClassVar[str] = CTranslate2Backend.title
    quantizations: ClassVar[tuple[str, ...]] = get_args(Quantization)

    def __init__(self, fast: CTranslate2Backend, load_in_torch: Callable[[], Backend], verbose: bool = False):
        self.fast, self._load_in_torch, self._level = fast, load_in_torch, _level(verbose)
        self._in_torch: Backend | None = None
        self._said: set[str] = set()

    @classmethod
    def from_model(
        cls,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        target_tokenizer: "PreTrainedTokenizerBase | None" = None,
        *,
        quantization: str = "float32",
    ) -> Backend:
        """Leaves a model in memory in torch."""
        from .torch_engine import TorchBackend

        return TorchBackend.from_model(model, tokenizer, target_tokenizer, quantization=quantization)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        device: str | None = None,
        quantization: str = "float32",
        verbose: bool = False,
        **options: Any,
    ) -> Backend:
        """Loads a model in the engine that suits it.

        Args:
            name_or_path: Folder, or name on the Hub.
            device: Where to run; a GPU, in torch, if there is one.
            quantization: Type of the weights.
            verbose: Whether the choice is logged as a warning.
            options: Those of `from_pretrained`.
        """
        reason = why_torch(name_or_path, device, **options)
        logger.log(_level(verbose), f"{name_or_path}: {describe(reason)}")
        where = {"device": device, "quantization": quantization, **options}
        if reason is None:
            fast = CTranslate2Backend.from_pretrained(name_or_path, **{**where, "device": "cpu"})
            return cls(fast, partial(_load_in_torch, name_or_path, **{**where, "quantization": "float32"}), verbose)
        if quantization != "float32":
            raise ValueError(
                f"quantization={quantization!r} is for CTranslate2, and torch decodes {name_or_path} ({reason}): "
                "leave out quantization."
            )
        return _load_in_torch(name_or_path, **where)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_in_torch": None}

    @property
    def in_torch(self) -> Backend:
        """The model in torch, which is loaded when it is first asked for."""
        return self._in_torch or self._load_once_in_torch()

    @LOADING
    def _load_once_in_torch(self) -> Backend:
        if self._in_torch is None:
            self._in_torch = self._load_in_torch()
        return self._in_torch

    @property
    def model(self) -> Any:
        return self.fast.model

    @property
    def config(self) -> Any:
        return self.fast.config

    @property
    def generation_config(self) -> Any:
        return self.fast.generation_config

    @cached_property  # asked for at every text, and whether torch is there takes a search of the disk
    def longest_input(self) -> int | None:
        return self.fast.longest_input if missing_for_torch() else longest_sequence_of(self.config)

    def describe(self) -> str:
        """Says what decodes, and why."""
        return describe(None)

    def require_options(self, options: dict[str, Any], *, sample: bool = False, glossary: bool = False) -> None:
        """Refuses what neither of the engines has."""
        if missing_for_torch():
            self.fast.require_options(options, sample=sample, glossary=glossary)
        elif sample or glossary:
            self.in_torch.require_options(options, sample=sample, glossary=glossary)

    def require_support(self, call: str) -> None:
        if missing_for_torch():
            self.fast.require_support(call)

    def set_seed(self, seed: int) -> None:
        """Seeds the engine that draws samples."""
        if missing_for_torch():
            self.fast.set_seed(seed)
        elif self._in_torch:
            self._in_torch.set_seed(seed)
        else:
            self._load_in_torch = partial(_seeded, self._load_in_torch, seed)

    def generate(
        self,
        sources: Sequence[TokenIds],
        prefixes: Sequence[TokenIds],
        *,
        search: SearchOptions | None,
        num_return_sequences: int = 1,
        **options: Any,
    ) -> Generated:
        reason = self._why_not_fast(search, prefixes, options)
        backend = self.fast if reason is None else self.in_torch
        if reason is not None and reason not in self._said:
            logger.log(self._level, describe(reason))
            self._said.add(reason)
        return backend.generate(sources, prefixes, search=search, num_return_sequences=num_return_sequences, **options)

    def score(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[list[float]]:
        return self._fast_up_to(sources, targets).score(sources, targets)

    def attend(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[Attention]:
        """Returns the weights of every head, from torch; where it is not installed, what CTranslate2 has."""
        return (self.fast if missing_for_torch() else self.in_torch).attend(sources, targets)

    def align(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[Attention]:
        """Returns the alignment of each pair, from the fast engine if it can: it has no weights of every head."""
        return self._fast_up_to(sources, targets).attend(sources, targets)

    def _fast_up_to(self, *sequences: Sequence[TokenIds]) -> Backend:
        """Returns the fast engine, or torch for sequences beyond its positions."""
        limit = self.fast.longest_input
        within = limit is None or max((len(ids) for rows in sequences for ids in rows), default=0) <= limit
        return self.fast if within or missing_for_torch() else self.in_torch

    def _why_not_fast(
        self, search: SearchOptions | None, prefixes: Sequence[TokenIds], options: dict[str, Any]
    ) -> str | None:
        """Says why torch decodes a call; `None` if CTranslate2 does."""
        if missing_for_torch():
            return None
        if not isinstance(search, BeamSearchOptions):
            return "CTranslate2 would draw other samples"
        if search.num_beams > 1 and search.length_penalty > HIGHEST_ALPHA:
            return f"with length_penalty={search.length_penalty} CTranslate2 would search for longer"
        given, limit = len(prefixes[0]) - 1, self.fast.longest_input
        longest = (
            given + options["max_new_tokens"] if options.get("max_new_tokens") else options.get("max_length", 1) - 1
        )
        if limit is not None and longest > limit:
            return f"CTranslate2 has {limit} positions"
        try:
            self.fast.require_options({name: value for name, value in options.items() if name != "early_stopping"})
        except ValueError as error:
            return str(error).split(":")[0]
        return None if options.get("early_stopping") in (None, False) else "early_stopping is torch's"


def why_torch(name_or_path: str | Path, device: str | None = None, **options: Any) -> str | None:
    """Says why torch decodes a model; `None` if CTranslate2 does.

    Args:
        name_or_path: Folder, or name on the Hub.
        device: Where to run.
        options: Options of `from_pretrained`.
    """
    if find_spec("ctranslate2") is None:
        return "CTranslate2 is not installed"
    for name in ("device_map", "dtype", "torch_dtype"):
        if name in options:
            return f"{name} is for torch"
    if device not in (None, "cpu"):
        return f"device={device!r}"
    if device is None and _has_accelerator():
        return "there is a GPU"
    config = read_config(name_or_path, **options)
    if missing_for_torch():
        return None
    return _why_not_convertible(name_or_path, config, options)


def _why_not_convertible(name_or_path: str | Path, config: SavedConfig, options: dict[str, Any]) -> str | None:
    if not can_export_saved(config):
        return f"a model of type {config.model_type!r} with its positions is torch's"
    try:
        require_expressible(config)
    except ValueError as error:
        return str(error).split(":")[0]
    if not find_weights(name_or_path, **options) or read_tokenizers(name_or_path, **options) is None:
        return "its weights or its tokenizer need the library"
    settings = read_generation_config(name_or_path, config, **options)
    ignored = [*ignored_settings(settings), *(["forced_eos_token_id"] if settings.forced_eos_token_id else [])]
    if settings.early_stopping not in (None, False):
        ignored.append("early_stopping")
    return f"CTranslate2 has no {', '.join(ignored)} of the model's generation_config" if ignored else None


def describe(reason: str | None) -> str:
    """Says which engine decodes and why: torch for a reason, or else CTranslate2."""
    return f"CTranslate2: {FASTEST}" if reason is None else f"torch: {reason}"


def _has_accelerator() -> bool:
    """Whether there is a GPU or another accelerator. On Linux, CTranslate2 knows without torch."""
    if find_engine_device(None) != "cpu":
        return True
    if missing_for_torch() or sys.platform == "linux":
        return False
    import torch

    return torch.accelerator.current_accelerator(check_available=True) is not None


def _load_in_torch(name_or_path: str | Path, *, quantization: str, **options: Any) -> Backend:
    from .hardware import require_torch

    require_torch(f"{name_or_path}")
    from .torch_engine import TorchBackend

    # Types that only CTranslate2 has are decoded in float32.
    known = quantization if quantization in TorchBackend.quantizations else "float32"
    return TorchBackend.from_pretrained(name_or_path, quantization=known, **options)


def _seeded(load: Callable[[], Backend], seed: int) -> Backend:
    backend = load()
    backend.set_seed(seed)
    return backend


def _level(verbose: bool) -> int:
    return logging.WARNING if verbose else logging.INFO
