"""Leases: one process at a time does a piece of work, on storage that many computers share.

A lease is a file. Its owner writes its name into it, and a new beat every few seconds. If the beats stop, the owner is
taken for dead and another process takes the lease. A process of the same computer that has ended is noticed at once.
No two clocks are compared: a process counts the seconds in which it sees no new beat.

A lease is weaker than a lock, which not every shared file system has: a process that stood still for a minute may go
on beside its successor. So the work must end in an atomic write of content that does not depend on who does it.
"""

import json
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from vanilla_transformer.safe_files.file_locks import is_named, lock


EXPIRES_AFTER = 60.0  # seconds without a beat
BEATS = 12  # in that time
RECORD_SIZE = 512  # of all records, so that a record is replaced in one write


class Lease:
    """A lease that this process holds inside a `with` block.

    Args:
        path: Its file, which must not exist.
        seconds: Time between two beats.
    """

    def __init__(self, path: Path, seconds: float):
        self.path, self.seconds = path, seconds
        self.progress = 0  # the owner counts here what it has done; others can read it
        self._beats = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._beat_until_released, daemon=True, name=f"lease {path.name}")
        self._beat()

    def __enter__(self) -> "Lease":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._released.set()
        self._thread.join()
        if is_named(self._descriptor, self.path):  # not the file of a successor
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def _beat_until_released(self) -> None:
        while not self._released.wait(self.seconds):
            self._beat()

    def _beat(self) -> None:
        self._beats += 1
        owner = {"machine": machine(), "process": os.getpid(), "beats": self._beats, "progress": self.progress}
        # Written to the open file, never by name: after a takeover that is the file of another process.
        with suppress(OSError):
            os.pwrite(self._descriptor, json.dumps(owner).encode().ljust(RECORD_SIZE - 1) + b"\n", 0)


class Leases:
    """Takes leases, and remembers which beats of other processes it has seen.

    Args:
        expires_after: Seconds without a beat after which the owner of a lease is taken for dead.
    """

    def __init__(self, expires_after: float = EXPIRES_AFTER):
        self.expires_after = expires_after
        self._last_beats: dict[Path, tuple[bytes, float]] = {}  # the record, and since when it has been this one

    def take(self, path: Path) -> Lease | None:
        """Takes a lease; returns `None` if another process holds it."""
        if self._is_abandoned(path):
            with lock(path.with_name(f".{path.name}.lock"), wait=True):
                if self._is_abandoned(path):  # and no other process was faster
                    path.unlink(missing_ok=True)
        try:
            return Lease(path, self.expires_after / BEATS)
        except FileExistsError:
            return None

    def _is_abandoned(self, path: Path) -> bool:
        try:
            record = path.read_bytes()
        except FileNotFoundError:
            return False
        owner = _owner_of(record)
        if owner.get("machine") == machine() and not _is_running(owner.get("process")):
            return True
        before, since = self._last_beats.get(path, (b"", 0.0))
        if record != before or not since:
            self._last_beats[path] = record, time.monotonic()
            return False
        return time.monotonic() - since > self.expires_after


def progress_of(path: Path) -> int:
    """Returns what the owner of a lease has counted; 0 if there is none."""
    try:
        progress = _owner_of(path.read_bytes()).get("progress")
    except OSError:
        return 0
    return progress if isinstance(progress, int) else 0


def machine() -> str:
    """Returns a name that is the same for all processes with comparable numbers: computer, its start, container."""
    parts = [socket.gethostname()]
    with suppress(OSError):  # only Linux has them
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _owner_of(record: bytes) -> dict[str, Any]:
    """Returns the content of a lease; nothing if its owner died before it was written."""
    with suppress(ValueError):
        owner = json.loads(record)
        if isinstance(owner, dict):
            return owner
    return {}


def _is_running(process: Any) -> bool:
    """Whether a process of this computer runs. One that has ended and that its parent has not noticed does not."""
    if not isinstance(process, int) or os.name != "posix":
        return True  # unknown: the beats will tell
    try:
        os.kill(process, 0)
        with suppress(OSError):
            return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True
