"""Threads of the engines, and whether torch is there: all without importing it."""

import os
import sys
from importlib.util import find_spec


def number_of_threads() -> int:
    """Returns how many threads an engine has: torch's, if it is in use, else OMP_NUM_THREADS or one for each core."""
    if "torch" in sys.modules:
        return sys.modules["torch"].get_num_threads()
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_number_of_threads(number: int) -> None:
    """Sets the threads of engines that start later, torch among them."""
    os.environ["OMP_NUM_THREADS"] = str(number)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(number)


def missing_for_torch() -> list[str]:
    """Returns what the engine torch needs and is not installed."""
    return [name for name in ("torch", "transformers") if name not in sys.modules and find_spec(name) is None]


def require_torch(what: str) -> None:
    """Refuses what only torch does where it is not installed."""
    if missing := missing_for_torch():
        names = " and ".join(missing)
        raise ImportError(f"{what} needs {names}: pip install {' '.join(missing)}, or leave it out.")
