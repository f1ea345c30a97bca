"""Folders that are there whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
