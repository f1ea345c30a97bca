"""Locks on files: only one process at a time writes a run, a folder or a file.

The system releases a lock when its process ends, however it ends. These are POSIX record locks: child processes do not
inherit them, so workers that outlive a killed process do not keep its lock. A record lock does not exclude the other
threads of its process, and is lost when any of them closes the file. A set of the locked names excludes threads.
"""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


try:
    import fcntl
except ImportError:  # Windows: only the threads of one process exclude each other
    fcntl = None  # type: ignore[assignment]


_HELD: set[str] = set()  # names of the files that this process has locked
_HELD_CHANGED = threading.Condition()
HELD_BY_ANOTHER = (errno.EACCES, errno.EAGAIN)


def _forget_locks_of_parent() -> None:
    """Makes the names free in a forked process: it inherits neither record locks nor the threads that have them."""
    global _HELD_CHANGED
    _HELD_CHANGED = threading.Condition()
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_locks_of_parent)


@contextmanager
def locked_file(path: str | Path, *, wait: bool = False) -> Iterator[int]:
    """Opens a file, creates it if needed, locks it, and gives its descriptor.

    The lock stays with the open file if the file is renamed or deleted inside the block. Raises `BlockingIOError` if
    another process or thread holds the lock. On file systems without locks, only threads exclude each other.

    Args:
        path: The file.
        wait: Whether to wait for the lock instead.
    """
    name = os.path.realpath(path)
    _reserve(name, wait)
    try:
        descriptor = _open_and_lock(name, wait)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    finally:
        with _HELD_CHANGED:
            _HELD.discard(name)
            _HELD_CHANGED.notify_all()


@contextmanager
def lock(path: str | Path, *, wait: bool = False) -> Iterator[int]:
    """Locks by means of a file that exists only inside the block; the arguments are those of `locked_file`."""
    with locked_file(path, wait=wait) as descriptor:
        try:
            yield descriptor
        finally:
            Path(path).unlink(missing_ok=True)


def _reserve(name: str, wait: bool) -> None:
    """Excludes the other threads of this process."""
    with _HELD_CHANGED:
        while name in _HELD:
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "locked by this process", name)
            _HELD_CHANGED.wait()
        _HELD.add(name)


def _open_and_lock(name: str, wait: bool) -> int:
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(descriptor, wait)
            if is_named(descriptor, name):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last owner has renamed or deleted it since it was opened: open the new one


def _lock(descriptor: int, wait: bool) -> None:
    if fcntl is None:
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in HELD_BY_ANOTHER:
            raise BlockingIOError(error.errno, "locked by another process") from error
        # Any other error: this file system has no locks.


def is_named(descriptor: int, name: str | Path) -> bool:
    """Whether an open file still has that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False
