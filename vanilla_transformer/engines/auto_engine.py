"""The fastest engine that gives torch's translations, chosen for each model and each call.

    translator = Translator.from_pretrained("runs/demo/model", verbose=True)        # backend="auto"

CTranslate2 decodes this package's models on a CPU, as far as `known_alike` lists everything that is set. Anything else
is torch's, which is loaded at the first call that needs it.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, get_args

from vanilla_transformer.converters.to_ctranslate2 import Quantization, longest_sequence_of
from vanilla_transformer.hub.installed import missing_for_torch
from vanilla_transformer.hub.process_locks import LOADING
from vanilla_transformer.hub.saved_files import read_record
from vanilla_transformer.models.search_options import SearchOptions

from .ctranslate2_engine import CTranslate2Backend, find_engine_device
from .engine import Attention, Backend, Generated, TokenIds
from .hardware import has_accelerator
from .known_alike import why_not_a_call, why_not_a_model


logger = logging.getLogger(__name__)


class AutoBackend:
    """Decodes with CTranslate2, and with torch what CTranslate2 is not known to decode alike.

    Args:
        fast: The model in CTranslate2.
        load_in_torch: Loads it in torch.
        level: How it is logged why torch decodes.
    """

    name: ClassVar[str] = "auto"
    title: ClassVar[str] = CTranslate2Backend.title
    quantizations: ClassVar[tuple[str, ...]] = get_args(Quantization)

    def __init__(self, fast: CTranslate2Backend, load_in_torch: Callable[[], Backend], level: int = logging.INFO):
        self.fast, self._load_in_torch, self._level = fast, load_in_torch, level
        self.model, self.config, self.generation_config = fast.model, fast.config, fast.generation_config
        self.longest_input = longest_sequence_of(fast.config)
        self._in_torch: Backend | None = None
        self._seed: int | None = None
        self._said: set[str] = set()

    @classmethod
    def from_model(cls, *model: Any, **options: Any) -> Backend:
        """Leaves a model in memory in torch: it may change, as in training."""
        from .torch_engine import TorchBackend

        return TorchBackend.from_model(*model, **options)

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
            quantization: Type of the weights in CTranslate2.
            verbose: Whether the choice is logged as a warning.
            options: Those of `from_pretrained`.
        """
        if read_record(name_or_path):  # converted already: there may be no other model, and no torch
            return CTranslate2Backend.from_pretrained(
                name_or_path, device=device, quantization=quantization, **options
            )
        reason, level = why_torch(name_or_path, device, **options), logging.WARNING if verbose else logging.INFO
        decodes = "CTranslate2 decodes as torch does" if reason is None else f"torch decodes: {reason}"
        logger.log(level, f"{name_or_path}: {decodes}")
        load_in_torch = partial(_load_in_torch, name_or_path, device=device, **options)
        if reason is None:
            where = {**options, "device": "cpu", "quantization": quantization}
            fast = CTranslate2Backend.from_pretrained(name_or_path, **where)
            return fast if missing_for_torch() else cls(fast, load_in_torch, level)
        if quantization != "float32":
            raise ValueError(
                f"quantization={quantization!r} is for CTranslate2, but torch decodes {name_or_path}: {reason}. Leave "
                "out quantization."
            )
        return load_in_torch()

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

    def require_options(self, options: dict[str, Any], *, sample: bool = False, glossary: bool = False) -> None:
        """Refuses nothing: torch has all options."""

    def require_support(self, call: str) -> None:
        """Refuses nothing: torch supports every call."""

    def set_seed(self, seed: int) -> None:
        """Sets the seed of the next samples, which torch draws."""
        self._seed = seed

    def generate(
        self,
        sources: Sequence[TokenIds],
        prefixes: Sequence[TokenIds],
        *,
        search: SearchOptions | None,
        **options: Any,
    ) -> Generated:
        reason = why_not_a_call(search, options)
        longest = max(options.get("max_length") or 0, len(prefixes[0]) + (options.get("max_new_tokens") or 0)) - 1
        if reason is None and longest > (self.fast.longest_input or longest):
            reason = f"CTranslate2 has {self.fast.longest_input} positions"
        if reason is None:
            return self.fast.generate(sources, prefixes, search=search, **options)
        if reason not in self._said:
            logger.log(self._level, f"torch decodes: {reason}")
            self._said.add(reason)
        if search is None and self._seed is not None:
            self.in_torch.set_seed(self._seed)
            self._seed = None
        return self.in_torch.generate(sources, prefixes, search=search, **options)

    def score(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[list[float]]:
        return self._fast_up_to(sources, targets).score(sources, targets)

    def attend(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[Attention]:
        """Returns the weights of every head, from torch."""
        return self.in_torch.attend(sources, targets)

    def align(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[Attention]:
        """Returns the alignment of each pair, from the fast engine if it can: it has no weights of every head."""
        return self._fast_up_to(sources, targets).attend(sources, targets)

    def _fast_up_to(self, *sequences: Sequence[TokenIds]) -> Backend:
        """Returns the fast engine, or torch for sequences beyond its positions."""
        limit = self.fast.longest_input
        within = limit is None or max((len(ids) for rows in sequences for ids in rows), default=0) <= limit
        return self.fast if within else self.in_torch


def why_torch(name_or_path: str | Path, device: str | None = None, **options: Any) -> str | None:
    """Says why torch decodes a model; `None` if CTranslate2 does.

    Args:
        name_or_path: Folder, or name on the Hub.
        device: Where to run.
        options: Options of `from_pretrained`.
    """
    if read_record(name_or_path):
        return None
    if find_spec("ctranslate2") is None:
        return "CTranslate2 is not installed"
    if given := [name for name in ("device_map", "dtype", "torch_dtype") if name in options]:
        return f"{given[0]} is for torch"
    if device not in (None, "cpu"):
        return f"device={device!r}"
    if device is None and (find_engine_device(None) != "cpu" or has_accelerator()):
        return "there is a GPU"
    return None if missing_for_torch() else why_not_a_model(name_or_path, **options)


@LOADING
def _load_in_torch(name_or_path: str | Path, **options: Any) -> Backend:
    from .torch_engine import TorchBackend

    return TorchBackend.from_pretrained(name_or_path, **options)
