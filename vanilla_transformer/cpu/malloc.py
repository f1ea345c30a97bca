"""Tuning of glibc's malloc for training on a CPU."""

import ctypes
import sys


# Numbers from glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_MMAP_THRESHOLD = 32 * 2**20  # glibc accepts no larger value


def keep_freed_memory(most: int = 2**30) -> bool:
    """Makes glibc keep up to `most` freed bytes for later allocations, and returns whether it does.

    Each update on a CPU frees all its activations, and the next one allocates as much. By default, glibc returns the
    memory to the system in between, and the system then provides it again page by page. That takes a tenth of a small
    model's training time.

    Args:
        most: Bytes to keep.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)) and bool(mallopt(M_TRIM_THRESHOLD, most))
