"""Locks of the process. They belong to the module, so that objects which use them pickle and copy.

    with LOADING:
        model = AutoModelForSeq2SeqLM.from_pretrained(folder)

    @LOADING
    def load(folder): ...

A thread that needs both takes `LOADING` first. A fork waits for both: otherwise a child would get a lock that no
thread releases, and libraries in the middle of a load.
"""

import concurrent.futures.thread  # noqa: F401 - see the end of this file
import os
import threading
from contextlib import ContextDecorator

import filelock  # noqa: F401 - see the end of this file


class ProcessLock(ContextDecorator):
    """A reentrant lock, as a context manager and a decorator."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


# While transformers loads a model, it replaces `PreTrainedModel.tie_weights` for all threads. So this package also
# builds and copies models under this lock, and it imports torch and transformers under it.
LOADING = ProcessLock()
# A tokenizer has state: truncation, padding, and in MarianMT's the language. Tokenizing takes little of the time.
TOKENIZING = ProcessLock()


def _enter_all() -> None:
    LOADING.__enter__()
    TOKENIZING.__enter__()


def _leave_all() -> None:
    TOKENIZING.__exit__()
    LOADING.__exit__()


# A fork takes the locks of the last module that registers first. A load takes the locks of `concurrent.futures` and
# filelock after ours, so a fork must, too: these modules are imported above.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_enter_all, after_in_parent=_leave_all, after_in_child=_leave_all)
