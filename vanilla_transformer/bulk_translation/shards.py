"""Shards: a long work in fixed pieces, which the processes of one computer do together, or the jobs of an array.

The work has numbered rows, such as the lines of a corpus. A shard is a range of them. A folder is all that the
processes share:

    manifest.json               what the result depends on, and the ranges
    shard-00003-of-00064.txt    a shard that is done; it appears whole
    shard-00004-of-00064.lock   a shard that a process is doing

A process that is started again, or later than the others, takes the next shard that nobody has locked. The system
releases the lock of a process that ends, however it ends. Where there are no locks between computers, two may do the
same shard: that costs time but changes nothing, because both write the same bytes in one rename. A manifest of another
work is refused.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import Timeout

from vanilla_transformer.hub.saved_files import read_object
from vanilla_transformer.safe_files.atomic_writes import remove_unfinished, write_json
from vanilla_transformer.safe_files.file_locks import lock


MANIFEST = "manifest.json"
POLL_SECONDS = 0.5  # between two looks at what other processes do
Range = tuple[int, int]  # the first row, and the first one after the shard; rows count from 0
CountRows = Callable[[int], None]  # is told how many rows of a shard are done


def equal_ranges(rows: int, number: int) -> list[Range]:
    """Divides rows into a number of shards of equal size, or fewer if there are not as many rows."""
    number = max(min(number, rows), 1)
    return [(rows * shard // number, rows * (shard + 1) // number) for shard in range(number)]


def ranges_of_size(rows: int, size: int) -> list[Range]:
    """Divides rows into shards of a size."""
    return [(start, min(start + size, rows)) for start in range(0, rows, size)] or [(0, 0)]


class Shards:
    """A folder with the shards of one work.

    Args:
        folder: The folder. It is made, or continued if it was begun with the same settings.
        settings: Everything that the result depends on, for JSON.
        ranges: The range of each shard.
        suffix: The end of the names of files with results.
        only: Numbers of the shards that this process may do; by default all of them.
    """

    def __init__(
        self,
        folder: str | Path,
        settings: dict[str, Any],
        ranges: list[Range],
        *,
        suffix: str = ".txt",
        only: Collection[int] | None = None,
    ):
        self.folder, self.ranges, self.suffix = Path(folder), ranges, suffix
        self.whole = self.folder / f"translations{suffix}"
        self.numbers = [number for number in range(len(ranges)) if only is None or number in only]
        manifest = {
            "settings": settings,
            "shards": {self.file(number).name: f"{start}:{stop}" for number, (start, stop) in enumerate(ranges)},
        }
        self._begin_or_continue(json.loads(json.dumps(manifest)))

    @property
    def rows(self) -> int:
        """Number of rows of the shards that this process may do."""
        return sum(self._size(number) for number in self.numbers)

    def file(self, number: int) -> Path:
        """Returns the file with the result of a shard, which may not exist yet."""
        return self.folder / f"shard-{number:05d}-of-{len(self.ranges):05d}{self.suffix}"

    def files(self) -> list[Path]:
        """Returns the files of all shards, in order."""
        return [self.file(number) for number in range(len(self.ranges))]

    # --- what is done ---

    def is_over(self) -> bool:
        """Whether the last step is done: the whole result is there, or the folder was removed."""
        return self.whole.exists() or not (self.folder / MANIFEST).exists()

    def missing(self) -> list[int]:
        """Returns the numbers of the shards that are not done, of those that this process may do."""
        if self.is_over():
            return []
        names = self._names()
        return [number for number in self.numbers if self.file(number).name not in names]

    def progress(self) -> tuple[int, int]:
        """Returns how many shards are done, and how many rows, with those of shards that are being done."""
        missing = self.missing()
        done = [self._size(number) for number in set(self.numbers).difference(missing)]
        return len(done), sum(done) + sum(map(self._rows_in_work, missing))

    def _size(self, number: int) -> int:
        start, stop = self.ranges[number]
        return stop - start

    def _rows_in_work(self, number: int) -> int:
        # The size of a lock file is the number of rows done.
        with suppress(FileNotFoundError):
            return self._lock_file(number).stat().st_size
        return 0

    # --- doing it ---

    def work(self, do: Callable[[int, CountRows], None]) -> None:
        """Does shards until all that this process may do are done, by this process or by others.

        Args:
            do: Writes the file of the shard with that number, atomically, and calls the function with the rows so far.
        """
        while missing := self.missing():
            if not sum(self._attempt(number, do) for number in missing):
                time.sleep(POLL_SECONDS)

    def work_on(self, number: int, do: Callable[[int, CountRows], None]) -> None:
        """Does one shard, or waits until another process has done it. The arguments are those of `work`."""
        while not (self.file(number).exists() or self.is_over() or self._attempt(number, do)):
            time.sleep(POLL_SECONDS)

    def finish(self, do: Callable[[], None]) -> None:
        """Lets one process do the last step, when all shards are done; the others wait for it.

        Args:
            do: Writes `whole`, or removes the folder.
        """
        with self._quiet_when_over(), lock(self.folder / "last-step.lock", wait=True):
            if not self.is_over():
                do()

    def tidy(self) -> None:
        """Removes everything but the manifest and the whole result."""
        for name in self._names():
            if name.startswith(("shard-", "last-step")):
                (self.folder / name).unlink(missing_ok=True)
        remove_unfinished(self.folder)

    def remove(self) -> None:
        """Removes the folder. The manifest goes first: without it, the work is over for other processes."""
        (self.folder / MANIFEST).unlink()
        shutil.rmtree(self.folder)

    def _attempt(self, number: int, do: Callable[[int, CountRows], None]) -> bool:
        """Does a shard if nobody has; returns whether it was done here."""
        path = self._lock_file(number)

        def count_rows(rows: int) -> None:
            with suppress(FileNotFoundError):  # where there are no locks, another process may have removed it
                os.truncate(path, rows)

        with self._quiet_when_over(), suppress(Timeout), lock(path):  # or another process is doing it
            if self.file(number).exists() or self.is_over():
                return False
            count_rows(0)  # a process that was killed has left its count
            do(number, count_rows)
            return True
        return False

    @contextmanager
    def _quiet_when_over(self) -> Iterator[None]:
        """Ignores that files are missing because another process did the last step and removed them."""
        try:
            yield
        except FileNotFoundError:
            if not self.is_over():
                raise

    def _lock_file(self, number: int) -> Path:
        return self.file(number).with_suffix("").with_suffix(".lock")

    def _names(self) -> set[str]:
        try:
            return set(os.listdir(self.folder))
        except FileNotFoundError:  # removed, because the work is over
            return set()

    # --- the manifest ---

    def _begin_or_continue(self, manifest: dict[str, Any]) -> None:
        path = self.folder / MANIFEST
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock(self.folder / f".{MANIFEST}.lock", wait=True):  # of processes that start at once, one begins
            if not path.is_file():
                if foreign := [name for name in sorted(self._names()) if not name.startswith(".")]:
                    raise ValueError(f"{self.folder} holds {foreign[0]}, but no {MANIFEST}: choose another folder.")
                write_json(path, manifest)
        begun = read_object(path)
        self._require_same(begun.get("settings") or {}, manifest["settings"])
        if begun != manifest:
            raise ValueError(f"{path} was changed: restore it, or delete that folder to start again.")

    def _require_same(self, before: dict[str, Any], settings: dict[str, Any]) -> None:
        for name in sorted(before.keys() | settings.keys()):
            if before.get(name) != settings.get(name):
                raise ValueError(
                    f"{self.folder} was begun with {name}={before.get(name)!r}, not {settings.get(name)!r}: continue "
                    "it with the same options, or delete that folder to start again."
                )
