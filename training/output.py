"""Writing results so that they are there whole or not at all, and never over older ones unasked."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from vanilla_transformer.folders import replacing


@contextmanager
def whole_folder(path: str | Path, *, known_by: str, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to write into, which becomes `path` when the block ends without an error.

    Args:
        path: Where the folder shall be.
        known_by: A file (or several, with *) that an older result of the same kind has: whatever --overwrite says, no
            other folder is replaced.
        overwrite: Whether it may take the place of one that is there and not empty.
    """
    path = Path(path)
    filled = path.exists() and (not path.is_dir() or any(path.iterdir()))
    if filled and not overwrite:
        raise ValueError(f"{path} is already there: choose another place, or pass --overwrite to replace it.")
    if (path / "run.json").is_file() or any(path.glob("checkpoint-*")):
        raise ValueError(f"{path} holds a training run, which nothing here replaces: choose another place.")
    if filled and not any(path.glob(known_by)):
        raise ValueError(f"{path} has no {known_by}, so it is no older result of this kind: choose another place.")
    with replacing(path) as folder:
        yield folder


def require_only(folder: str | Path, names: Collection[str], writer: str) -> None:
    """Whatever --overwrite says, it means an older result of the same kind: no other folder is replaced by one.

    Args:
        folder: The folder to be replaced.
        names: The files that it may hold.
        writer: Who writes such files.
    """
    found = {path.name for path in Path(folder).iterdir()} if Path(folder).is_dir() else set()
    if foreign := sorted(found - set(names)):
        raise ValueError(f"{folder} holds {foreign[0]}, which no {writer} wrote: choose another --output_dir.")


@contextmanager
def whole_file(path: str | Path, *, overwrite: bool = False) -> Iterator[TextIO]:
    """A text file to write, which takes its name when the block ends without an error. What an error or Ctrl-C leaves
    of it is kept as `<path>.partial`."""
    path = Path(path)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is already there: choose another place, or pass --overwrite to replace it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            yield file
    except BaseException:
        if not partial.stat().st_size:
            partial.unlink()
        raise
    os.replace(partial, path)


def one_line(text: str) -> str:
    """Text that takes up one line of a file: line breaks become spaces."""
    return re.sub(r"[\r\n]+", " ", text)
