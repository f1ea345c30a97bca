"""What exists only because a CPU is slow. Without this folder everything gives the same results, only slower.

- `packed_decoder_steps`: decoder steps on weights in a faster order, up to 1.9 times as fast.
- `malloc`: a setting of glibc for training.
"""

from importlib import import_module
from typing import Any


def use_packed_steps() -> None:
    """Lets searches run packed decoder steps. They are imported at the first search."""
    seam = import_module("vanilla_transformer.models.decoder_steps")
    seam.FASTER_STEPPERS.append(lambda *arguments: _packed().make_stepper(*arguments))
    seam.FASTER_PASSES.append(lambda *arguments: _packed().make_passes(*arguments))


def _packed() -> Any:
    return import_module("vanilla_transformer.cpu.packed_decoder_steps")
