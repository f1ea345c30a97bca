"""Standard input and output. Each may be closed before Python starts, and is then `None`."""

import sys
from contextlib import AbstractContextManager, nullcontext
from io import TextIOWrapper
from typing import IO, BinaryIO, TextIO

from vanilla_transformer.safe_files.atomic_writes import whole_file


def standard_input() -> BinaryIO:
    """Returns standard input, or raises a `ValueError` if it is closed."""
    if sys.stdin is None:
        raise ValueError("Standard input is closed: give --input.")
    return sys.stdin.buffer


def open_output(path: str | None, *, overwrite: bool = False, resume: bool = False) -> AbstractContextManager[TextIO]:
    """Opens a file as `whole_file` does, or standard output if no path is given.

    Both are UTF-8, as input is: a locale of ASCII must not end a translation in the middle.
    """
    if path and path.endswith(".gz"):
        raise ValueError(f"{path}: this output is not compressed. Leave out .gz, and run gzip on the file.")
    if path:
        return whole_file(path, overwrite=overwrite, resume=resume)
    if sys.stdout is None:
        raise ValueError("Standard output is closed: give --output.")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return nullcontext(sys.stdout)


def on_terminal(stream: IO | None) -> bool:
    """Whether a standard stream is a terminal."""
    return stream is not None and stream.isatty()
