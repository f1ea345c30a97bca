"""The engines that decode for `Translator`: one module for each, all with the methods of `Backend`.

A module is imported when its engine is used: one without torch needs none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from .engine import Attention, Backend, Generated


if TYPE_CHECKING:
    from .auto_engine import AutoBackend
    from .ctranslate2_engine import CTranslate2Backend
    from .torch_engine import TorchBackend


# The class of each engine, or where it is in this folder.
BACKENDS: dict[str, type[Backend] | str] = {
    "auto": "auto_engine.AutoBackend",
    "torch": "torch_engine.TorchBackend",
    "ctranslate2": "ctranslate2_engine.CTranslate2Backend",
}
_CLASSES = {str(place).split(".")[1]: str(place) for place in BACKENDS.values()}


def backend_named(name: str) -> type[Backend]:
    """Returns the class of a backend, which makes it of a model in memory or loads it from a path."""
    if name not in BACKENDS:
        raise ValueError(f"backend={name!r} is unknown: choose one of {', '.join(BACKENDS)}.")
    found = BACKENDS[name]
    return _import(found) if isinstance(found, str) else found


def _import(place: str) -> type[Backend]:
    module, name = place.split(".")
    return cast(type[Backend], getattr(import_module(f"{__name__}.{module}"), name))


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return _import(_CLASSES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BACKENDS",
    "Attention",
    "AutoBackend",
    "Backend",
    "CTranslate2Backend",
    "Generated",
    "TorchBackend",
    "backend_named",
]
