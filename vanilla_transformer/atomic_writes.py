"""Atomic writes: a file or a folder appears complete under its name, or not at all.

Content is written under a temporary name in the same folder and then renamed. A reader never sees half a file, and a
run that is killed leaves the previous version. `whole_file` and `whole_folder` also refuse to replace what exists,
unless `overwrite` is set.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO


# --- files ---


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file in UTF-8 atomically. Lines end in a line feed on every system."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp creates files that only their owner can read
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_json(path: str | Path, content: Any) -> None:
    """Writes a JSON file atomically, indented and in UTF-8."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Writes a text file atomically, one line for each string."""
    write_text(path, "".join(f"{line}\n" for line in lines))


@contextmanager
def whole_file(path: str | Path, *, overwrite: bool = False) -> Iterator[TextIO]:
    """Opens a text file for writing that is renamed to `path` when the block ends without an error.

    The lines written before an error or Ctrl-C are kept as `<path>.partial`.

    Args:
        path: The file.
        overwrite: Whether to replace an existing file.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is already there: choose another file, or pass --overwrite to replace it.")
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
    """Replaces line breaks by spaces, so that a text takes one line of a file."""
    return re.sub(r"[\r\n]+", " ", text)


# --- folders ---


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a temporary folder that replaces `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        temporary.chmod(0o777 & ~_umask())  # mkdtemp creates folders that only their owner can read
        yield temporary
        for file in temporary.rglob("*"):  # safetensors writes files that only their owner can read
            file.chmod((0o777 if file.is_dir() else 0o666) & ~_umask())
        # A folder can't be renamed over one that holds files: move the previous one aside first.
        previous = temporary.with_name(f"{temporary.name}.old")
        if path.exists():
            os.replace(path, previous)
        os.replace(temporary, path)
        shutil.rmtree(previous, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def whole_folder(
    path: str | Path, *, known_by: str | None = None, made_of: Collection[str] | None = None, overwrite: bool = False
) -> Iterator[Path]:
    """Gives a temporary folder that is renamed to `path` when the block ends without an error.

    Even with `overwrite`, only an older result of the same kind is replaced. Any other folder is refused.

    Args:
        path: The folder to create.
        known_by: A file that every result of this kind contains.
        made_of: The names of all files that a result of this kind can contain, if they are known.
        overwrite: Whether to replace an older result.
    """
    require_room(path, known_by=known_by, made_of=made_of, overwrite=overwrite)
    with replacing(Path(path)) as folder:
        yield folder


def require_room(
    path: str | Path, *, known_by: str | None = None, made_of: Collection[str] | None = None, overwrite: bool = False
) -> None:
    """Refuses a folder that `whole_folder` would not write, before the work is done. The arguments are the same."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file: choose another --output_dir.")
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else set()
    if "run.json" in names or any(name.startswith("checkpoint-") for name in names):
        raise ValueError(f"{path} holds a training run, which is never replaced: choose another --output_dir.")
    if made_of is not None and (foreign := sorted(names - set(made_of))):
        raise ValueError(f"{path} holds {foreign[0]}, no part of an older result: choose another --output_dir.")
    if known_by is not None and names and known_by not in names:
        raise ValueError(f"{path} has no {known_by}, so it is no older result: choose another --output_dir.")
    if names and not overwrite:
        raise ValueError(f"{path} is already there: choose another folder, or pass --overwrite to replace it.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
