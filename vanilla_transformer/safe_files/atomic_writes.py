"""Atomic writes: a file or a folder appears complete under its name, or not at all.

Content is written under a temporary name in the same folder, brought to the disk, and then renamed. A reader never
sees half a file, and a process that is killed leaves the previous version. `whole_file` and `whole_folder` also refuse
to replace what exists, unless `overwrite` is set, and to write what another process is writing.
"""

import glob
import json
import os
import re
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, TextIO

from filelock import Timeout

from .file_locks import lock


RANDOM = "[a-z0-9_]" * 8  # in names of temporary files and folders

# --- files ---


@contextmanager
def new_file(path: str | Path) -> Iterator[Path]:
    """Gives a temporary name of a file that is renamed to `path` when the block ends without an error.

    Several processes may write one path at once, also from several computers: each has a file of its own, and the last
    one stays.
    """
    path = Path(os.path.realpath(path))  # a symbolic link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file in UTF-8 atomically. Lines end in a line feed on every system."""
    with new_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def write_json(path: str | Path, content: Any) -> None:
    """Writes a JSON file atomically, indented and in UTF-8."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Writes a text file atomically, one line for each string."""
    write_text(path, "".join(f"{line}\n" for line in lines))


@contextmanager
def whole_file(path: str | Path, *, overwrite: bool = False, resume: bool = False) -> Iterator[TextIO]:
    """Opens a text file for writing that is renamed to `path` when the block ends without an error.

    The lines written before an error or Ctrl-C are kept as `<path>.partial`. Terminals, other devices such as
    /dev/null, and pipes are written directly. Symbolic links are followed.

    Args:
        path: The file.
        overwrite: Whether to replace an existing file.
        resume: Whether to keep what `<path>.partial` holds. The file can be read, too, and is at its beginning.
    """
    if Path(path).is_char_device() or Path(path).is_fifo():
        if resume:
            raise ValueError(f"{path} is a device or a pipe, which keeps no lines to resume from: leave out --resume.")
        with Path(path).open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    path = _require_regular(path)
    partial = partial_of(path)
    with _held(path):
        _require_new(path, overwrite)
        try:
            partial.touch()
            with partial.open("r+", encoding="utf-8", newline="\n") as file:
                if not resume:
                    file.truncate()
                yield file
            _sync(partial)
            _require_new(path, overwrite)  # it may have appeared since
            os.replace(partial, path)
        except BaseException:
            if partial.exists() and not partial.stat().st_size:
                partial.unlink()
            raise


def partial_of(path: str | Path) -> Path:
    """Returns the file that keeps the lines of an unfinished `whole_file`."""
    path = Path(os.path.realpath(path))
    return path.with_name(f"{path.name}.partial")


def one_line(text: str) -> str:
    """Replaces line breaks by spaces, so that a text takes one line of a file."""
    return re.sub(r"[\r\n]+", " ", text)


def _require_regular(path: str | Path) -> Path:
    """Returns the file behind a path, and refuses what is not a file."""
    resolved = Path(os.path.realpath(path))
    if resolved.is_dir():
        raise ValueError(f"{path} is a folder: give the name of a file for --output.")
    if resolved.is_symlink() or (resolved.exists() and not resolved.is_file()):
        raise ValueError(f"{path} is neither a file nor a device nor a pipe: choose another --output.")
    return resolved


def _require_new(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise ValueError(f"{path} is already there: choose another file, or pass --overwrite to replace it.")


# --- folders ---


@contextmanager
def whole_folder(
    path: str | Path,
    *,
    known_by: str | None = None,
    made_of: Collection[str] | None = None,
    overwrite: bool = False,
    wait: bool = False,
) -> Iterator[Path]:
    """Gives a temporary folder that is renamed to `path` when the block ends without an error.

    Even with `overwrite`, only an older result of the same kind is replaced. Any other folder is refused. The older
    one is moved aside and then deleted. If the process is killed in between, the next writer puts it back.

    Args:
        path: The folder to create.
        known_by: A file that every result of this kind contains.
        made_of: The names of all files that a result of this kind can contain, if they are known.
        overwrite: Whether to replace an older result.
        wait: Whether to wait for another process that is writing the folder, instead of an error.
    """
    path = Path(os.path.realpath(path))
    with _held(path, wait=wait):
        _recover(path)
        require_room(path, known_by=known_by, made_of=made_of, overwrite=overwrite)
        temporary = _temporary(path)
        try:
            temporary.mkdir()
            yield temporary
            for file in temporary.rglob("*"):  # safetensors writes files that only their owner can read
                file.chmod(temporary.stat().st_mode & (0o777 if file.is_dir() else 0o666))
            sync_files(temporary)
            if path.exists():
                os.replace(path, temporary.with_suffix(".old"))
            os.replace(temporary, path)
        finally:
            _recover(path)


def sync_files(folder: Path) -> None:
    """Brings all files of a folder to the disk."""
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def remove_unfinished(folder: Path) -> None:
    """Removes temporary files of a folder that killed processes left. No other process may write there."""
    for path in folder.glob(f".*-{RANDOM}.new"):
        if path.is_file():
            path.unlink(missing_ok=True)


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


def _recover(path: Path) -> None:
    """Puts back a folder that was moved aside and not replaced, and removes unfinished and older ones."""
    name = f".{glob.escape(path.name)}-{RANDOM}"
    for entry in (*path.parent.glob(f"{name}.old"), *path.parent.glob(f"{name}.new")):
        if entry.suffix == ".old" and not path.exists():
            os.replace(entry, path)
        else:
            shutil.rmtree(entry, ignore_errors=True)


# --- both ---


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}-{token_hex(4)}.new")


def _sync(path: Path) -> None:
    """Brings a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _held(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Makes the parent folder of a path and locks the path, or says in a sentence why it can't be written."""
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(lock(path.with_name(f".{path.name}.lock"), wait=wait))
        except Timeout as error:
            raise OSError(f"Another process is writing {path}: wait until it ends, or choose another name.") from error
        except OSError as error:
            reason = (
                "its folder is a file" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
            )
            raise OSError(
                f"{path} can't be written ({reason}): choose another folder, or change its permissions."
            ) from error
        yield
