"""Locks between threads and processes: only one at a time writes a run, a folder or a file.

The system releases a lock when its process ends, however it ends. Forked children do not hold the locks of their
parent. Where a file system has no locks, filelock uses the existence of the file.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock


@contextmanager
def lock(path: str | Path, *, wait: bool = False) -> Iterator[None]:
    """Locks by means of a file that exists only inside the block, unless the process is killed.

    Raises `filelock.Timeout` if another process or thread holds the lock.

    Args:
        path: The file.
        wait: Whether to wait for the lock instead.
    """
    Path(path).parent.stat()  # filelock would make a folder that is not there
    with FileLock(path, blocking=wait, thread_local=False):
        try:
            yield
        finally:  # filelock tries again if the file that it has locked was deleted meanwhile
            with suppress(OSError):  # Windows deletes no open file
                Path(path).unlink()
