"""Threads and devices of the engines, and whether torch is there: all without importing it."""

import os
import sys
from functools import cache
from importlib.util import find_spec


def number_of_threads() -> int:
    """Returns how many threads an engine has: OMP_NUM_THREADS, or one for each core."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_number_of_threads(number: int) -> None:
    """Sets the threads of engines that start later, and of torch if it is imported later."""
    os.environ["OMP_NUM_THREADS"] = str(number)


@cache
def missing_for_torch() -> tuple[str, ...]:
    """Returns what the engine torch needs and is not installed.

    Only this function knows whether torch is there. `sys.modules` does not: while a thread imports torch for the first
    time, others find half of it.
    """
    return tuple(name for name in ("torch", "transformers") if find_spec(name) is None)


def require_torch(what: str) -> None:
    """Refuses what only torch does where it is not installed."""
    if missing := missing_for_torch():
        names = " and ".join(missing)
        raise ImportError(f"{what} needs {names}: pip install {' '.join(missing)}, or leave it out.")


def has_accelerator() -> bool:
    """Whether torch sees a GPU that is none of CUDA's, which on Linux it is not asked for."""
    if missing_for_torch() or sys.platform == "linux":
        return False
    import torch

    return torch.accelerator.current_accelerator(check_available=True) is not None
