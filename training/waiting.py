"""Letting one process prepare what all need, while the others wait outside of any collective operation.

A barrier would do the same, but every collective has a time-out (`ddp_timeout`, 30 minutes), and preparing a large
corpus can take longer. The others ask the process group's store instead, once a second.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from accelerate import PartialState


@contextmanager
def one_first(name: str, seconds_between: float = 1.0) -> Iterator[None]:
    """Runs its body in process 0, then in the first process of every other computer, then in all others.

    Args:
        name: Names what is prepared; each name is used once.
        seconds_between: How often waiting processes look.
    """
    state = PartialState()
    if state.num_processes == 1:
        yield
        return
    store = torch.distributed.distributed_c10d._get_default_store()
    node = state.process_index - state.local_process_index  # its first process
    here = f"vanilla_transformer/{name}/{node}"
    if state.process_index:
        _wait(store, here if state.local_process_index else f"vanilla_transformer/{name}/0", seconds_between)
    try:
        yield
    except BaseException:
        if not state.local_process_index:
            store.set(here, "failed")
        raise
    if not state.local_process_index:
        store.set(here, "done")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Lets SIGTERM and Ctrl-C end the process at once. Python's handlers do not run while torch waits for others."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _wait(store: torch.distributed.Store, key: str, seconds: float) -> None:
    while not store.check([key]):
        time.sleep(seconds)
    if store.get(key) != b"done":
        raise RuntimeError("Another process could not prepare the data; its own message says why.")
