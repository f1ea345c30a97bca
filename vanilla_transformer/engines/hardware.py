"""Threads and devices of the engines, without importing torch."""

import os
import sys

from vanilla_transformer.hub.installed import missing_for_torch


def number_of_threads() -> int:
    """Returns how many threads an engine has: OMP_NUM_THREADS, or one for each core."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_number_of_threads(number: int) -> None:
    """Sets the threads of engines that start later, and of torch if it is imported later."""
    os.environ["OMP_NUM_THREADS"] = str(number)


def has_accelerator() -> bool:
    """Whether torch sees a GPU that is none of CUDA's, which on Linux it is not asked for."""
    if missing_for_torch() or sys.platform == "linux":
        return False
    import torch

    return torch.accelerator.current_accelerator(check_available=True) is not None
