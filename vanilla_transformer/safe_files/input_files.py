"""Reading text, JSON lines and Parquet, each also gzipped. An error names the file and line."""

import gzip
import json
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast


if TYPE_CHECKING:  # only tables need it
    import pyarrow.parquet as pq


def kind_of(path: Path) -> str:
    """Returns the suffix without `.gz`, which says the format."""
    return Path(path.name.removesuffix(".gz")).suffix


# --- reading files ---


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def lines_of(path: Path, *, keep_ends: bool = False) -> Iterator[str]:
    with _open(path) as file:
        try:
            yield from decoded_lines(file, str(path), keep_ends=keep_ends)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is not a complete gzip file ({error}): copy or download it again.") from error


def decoded_lines(file: Iterable[bytes], name: str, *, keep_ends: bool = False) -> Iterator[str]:
    """Yields the lines of UTF-8 text. They end in LF or CR LF; other line separators of Unicode are text."""
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{name}, line {number}: byte {error.start + 1} is not UTF-8 ({error.reason}). Convert it, for "
                "example with iconv -t utf-8."
            ) from error
        yield text if keep_ends else text.removesuffix("\n").removesuffix("\r")


def lines_in_files(files: Iterable[str]) -> Iterator[str]:
    """Yields the lines of several plain text files, which may be gzipped."""
    return chain.from_iterable(map(lines_of, existing(files)))


def existing(files: Iterable[str]) -> list[Path]:
    """Returns files as paths, and refuses one that is not there."""
    paths = [Path(file) for file in files]
    for path in paths:
        if not path.is_file():
            raise ValueError(f"There is no file {str(path)!r}: check the path.")
    return paths


def json_rows(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yields the objects of a file of JSON lines: where each is, its line, and its content."""
    for number, line in enumerate(lines_of(path), start=1):
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{where}: not valid JSON ({error}). Each line holds one object.") from error
        if not isinstance(row, dict):
            raise ValueError(f"{where}: {row!r:.40} is not an object such as " + '{"en": "...", "de": "..."}.')
        yield where, line, row


@contextmanager
def open_parquet(path: Path) -> "Iterator[pq.ParquetFile]":
    """Opens a Parquet file, which may be gzipped. An error while it is read names it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as plain, _open(path) as file:
        if path.suffix == ".gz":  # Parquet is read from its end, and a gzip stream cannot seek there
            shutil.copyfileobj(file, plain)
        try:
            yield pq.ParquetFile(plain if path.suffix == ".gz" else path)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{path} is not a complete Parquet file ({error}): copy or download it again.") from error
