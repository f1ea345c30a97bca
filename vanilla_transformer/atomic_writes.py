"""Files and folders that appear whole or not at all, and never replace older ones unless asked to."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary folder to write into. When the block ends without an error it becomes `path`, in place of what was
    there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        new.chmod(0o777 & ~_umask())  # mkdtemp makes folders that nobody else can read
        yield new
        for file in new.rglob("*"):  # weights come out of safetensors for their owner alone
            file.chmod((0o777 if file.is_dir() else 0o666) & ~_umask())
        # A folder can't be renamed over one with files in it: the old one steps aside first.
        old = new.with_name(f"{new.name}.old")
        if path.exists():
            os.replace(path, old)
        os.replace(new, path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def whole_folder(
    path: str | Path, *, known_by: str | None = None, made_of: Collection[str] | None = None, overwrite: bool = False
) -> Iterator[Path]:
    """A temporary folder to write into, which becomes `path` when the block ends without an error.

    Whatever `overwrite` says, it means an older result of the same kind: no other folder is replaced by one.

    Args:
        path: Where the folder shall be.
        known_by: A file that every result of this kind has, whatever else there may be in it.
        made_of: All that a result of this kind can hold, where that is known.
        overwrite: Whether it may take the place of one that is there and not empty.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file: choose another --output_dir.")
    found = {each.name for each in path.iterdir()} if path.is_dir() else set()
    if "run.json" in found or any(name.startswith("checkpoint-") for name in found):
        raise ValueError(f"{path} holds a training run, which nothing here replaces: choose another --output_dir.")
    if made_of is not None and (foreign := sorted(found - set(made_of))):
        raise ValueError(f"{path} holds {foreign[0]}, no part of an older result: choose another --output_dir.")
    if known_by is not None and found and known_by not in found:
        raise ValueError(f"{path} has no {known_by}, so it is no older result: choose another --output_dir.")
    if found and not overwrite:
        raise ValueError(f"{path} is already there: choose another place, or pass --overwrite to replace it.")
    with replacing(path) as folder:
        yield folder


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


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file atomically: under a temporary name first, then renamed."""
    path = Path(path)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_json(path: str | Path, content: Any) -> None:
    """Writes a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Writes a text file atomically, one line for each string."""
    write_text(path, "".join(f"{line}\n" for line in lines))


def one_line(text: str) -> str:
    """Text that takes up one line of a file: line breaks become spaces."""
    return re.sub(r"[\r\n]+", " ", text)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
