"""The engines that decode for `Translator`: one module for each, all with the methods of `Backend`."""

from .ctranslate2_engine import CTranslate2Backend
from .engine import Attention, Backend, Generated
from .onnx_engine import OnnxBackend
from .torch_engine import TorchBackend


BACKENDS: dict[str, type[Backend]] = {
    "torch": TorchBackend,
    "ctranslate2": CTranslate2Backend,
    "onnx": OnnxBackend,
}


def backend_named(name: str) -> type[Backend]:
    """Returns the class of a backend, which makes it of a model in memory or loads it from a path."""
    if name not in BACKENDS:
        raise ValueError(f"backend={name!r} is unknown: choose one of {', '.join(BACKENDS)}.")
    return BACKENDS[name]


__all__ = [
    "BACKENDS",
    "Attention",
    "Backend",
    "CTranslate2Backend",
    "Generated",
    "OnnxBackend",
    "TorchBackend",
    "backend_named",
]
