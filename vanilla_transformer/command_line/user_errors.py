"""How a command ends: with one sentence for what the user can fix, and by signals as by Ctrl-C."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from .program import program_name


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Ends a script with one sentence for errors that the user can fix; `VANILLA_TRACEBACK=1` shows the traceback.

    SIGTERM ends it as Ctrl-C does.
    """
    if sys.stderr is None:  # closed before Python started; libraries write to it unasked
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        with _sigterm_as_ctrl_c():
            yield
            if sys.stdout is not None:
                sys.stdout.flush()  # here, an error is caught
    except BrokenPipeError:  # the reader of our output has ended, `head` for instance
        _discard_output()
    except Exception as error:
        if os.environ.get("VANILLA_TRACEBACK") or not _has_sentence(error):
            raise
        _discard_output()
        # A strict dataclass wraps the error that has the sentence.
        is_wrapped = isinstance(error, _imported("huggingface_hub.errors", "StrictDataclassError"))
        sentence = error.__cause__ if is_wrapped else error
        sys.exit(f"{program_name()}: {sentence}")
    except KeyboardInterrupt as interruption:
        sys.exit(128 + (signal.SIGTERM if isinstance(interruption, Terminated) else signal.SIGINT))


def _has_sentence(error: Exception) -> bool:
    """Whether a user can cause an error. `tokenizers` has only `Exception` itself for a full disk, for instance."""
    kinds = (
        *_imported("huggingface_hub.errors", "StrictDataclassError"),
        *_imported("safetensors", "SafetensorError"),
    )
    return isinstance(error, (ValueError, OSError, ImportError, *kinds)) or type(error) is Exception


def _imported(module: str, name: str) -> tuple[type[Exception], ...]:
    """Returns an error class of a library; none if it was not imported, so that it can't have raised one."""
    return (getattr(sys.modules[module], name),) if module in sys.modules else ()


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _discard_output() -> None:
    """Gives up output that can't be written. Python would try again at its end, and print a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
