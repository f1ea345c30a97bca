"""Writing results so that they are there whole or not at all, and never over older ones unasked."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def whole_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder to write into, which becomes `path` when the block ends without an error.

    Args:
        path: Where the folder shall be.
        overwrite: Whether it may take the place of one that is there and not empty.
    """
    path = Path(path)
    if path.exists() and not overwrite and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} is already there: choose another place, or pass --overwrite to replace it.")
    if (path / "run.json").is_file() or any(path.glob("checkpoint-*")):
        raise ValueError(f"{path} holds a training run, which nothing here replaces: choose another place.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        temporary.chmod(0o777 & ~_umask())  # mkdtemp makes folders that nobody else can read
        yield temporary
        for file in temporary.rglob("*"):  # weights come out of safetensors for their owner alone
            file.chmod((0o777 if file.is_dir() else 0o666) & ~_umask())
        _replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


def _replace(new: Path, path: Path) -> None:
    """A folder can't be renamed over one with files in it: the old one steps aside first."""
    old = new.with_name(f"{new.name}.old")
    if path.exists():
        os.replace(path, old)
    os.replace(new, path)
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
