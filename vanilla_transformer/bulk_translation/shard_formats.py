"""A corpus to translate, by the format of its files: lines of text, JSON lines or Parquet.

Each class reads rows one by one, knows the text of a row, and writes rows with their translations. The output has the
format of the input. Tables keep all their columns, unchanged, and get a column with the translation.
"""

import gzip
import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TextIO, TypeVar

from vanilla_transformer import Hypothesis
from vanilla_transformer.safe_files.atomic_writes import one_line
from vanilla_transformer.safe_files.input_files import existing, json_rows, kind_of, lines_in_files, open_parquet


if TYPE_CHECKING:  # only tables need it
    import pyarrow as pa


Row = TypeVar("Row")
JSON_LINES, PARQUET = (".jsonl", ".json"), (".parquet",)  # suffixes of tables
ROWS_AT_A_TIME = 4096  # of Parquet: read, and written as a row group


class Corpus(Generic[Row]):
    """Texts to translate. A subclass is a format. It can be pickled, so that other processes read the same corpus."""

    suffix: str
    """The end of the names of output files."""

    def number_and_digest(self) -> tuple[int, str]:
        """Returns the number of rows, and a digest of their content."""
        raise NotImplementedError

    def settings(self) -> dict[str, Any]:
        """Returns the options of the format, on which the output depends, too."""
        return {name: value for name, value in vars(self).items() if name not in ("files", "lines")}

    def rows(self) -> Iterator[Row]:
        """Yields all rows."""
        raise NotImplementedError

    def text_of(self, row: Row) -> str:
        """Returns the text to translate."""
        raise NotImplementedError

    def write(self, path: Path, translated: Iterable[tuple[Row, list[Hypothesis]]]) -> None:
        """Writes rows with their translations, best first."""
        raise NotImplementedError

    def join(self, parts: Sequence[Path], path: Path) -> None:
        """Joins files that `write` has written. By default their bytes, which is right for gzip files, too."""
        with path.open("wb") as whole:
            for part in parts:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, whole, 1 << 20)


@dataclass
class Lines(Corpus[str]):
    """Lines of text. Without details, the output has the translations only.

    Args:
        lines: Returns all lines; called more than once.
        details: Which of `DETAILS` to write before each translation.
        suffix: `".txt"`, or `".txt.gz"` to compress the output.
    """

    lines: Callable[[], Iterator[str]]
    details: list[str] = field(default_factory=list)
    suffix: str = ".txt"

    def number_and_digest(self) -> tuple[int, str]:
        digest, number = hashlib.sha256(), 0
        for line in self.lines():
            digest.update(f"{line}\n".encode("utf-8", "surrogatepass"))
            number += 1
        return number, digest.hexdigest()[:16]

    def rows(self) -> Iterator[str]:
        return self.lines()

    def text_of(self, row: str) -> str:
        return row

    def write(self, path: Path, translated: Iterable[tuple[str, list[Hypothesis]]]) -> None:
        with _open_text(path, self.suffix) as file:
            for _, hypotheses in translated:
                file.write(output_lines(hypotheses, self.details))


# What may be written beside a translation, and how it is written in a line of text.
DETAILS: dict[str, Callable[[Any], str]] = {
    "score": "{:.6f}".format,
    "confidence": "{:.4f}".format,
    "word_alignment": str,
}


def output_lines(hypotheses: Sequence[Hypothesis], details: Iterable[str] = ()) -> str:
    """Returns the output lines for one input line: the details, each with a tab behind it, then the translation."""
    lines = []
    for hypothesis in hypotheses:
        values = [DETAILS[name](getattr(hypothesis, name)) for name in details]
        lines.append("\t".join([*values, one_line(hypothesis.text)]))
    return "".join(f"{line}\n" for line in lines)


# --- tables ---


@dataclass
class Table(Corpus[Row]):
    """Rows with columns, one of which is translated.

    Args:
        files: The files.
        text_column: The column with the text.
        translation_column: A new column for the translations: a text, or a list of texts if there are several.
        details: Which of `DETAILS` become columns, such as `<translation_column>_score`.
        n_best: Number of translations of each row.
        suffix: The end of the names of output files.
    """

    files: tuple[str, ...]
    text_column: str = "text"
    translation_column: str = "translation"
    details: list[str] = field(default_factory=list)
    n_best: int = 1
    suffix: str = ""

    @property
    def new_names(self) -> list[str]:
        """The names of the columns that a row gets."""
        return [self.translation_column, *(f"{self.translation_column}_{name}" for name in self.details)]

    def new_columns(self, hypotheses: Sequence[Hypothesis]) -> dict[str, Any]:
        """Returns the columns that a row gets."""
        values = [[getattr(each, name) for each in hypotheses] for name in ("text", *self.details)]
        columns = zip(self.new_names, values, strict=True)
        return {name: several if self.n_best > 1 else several[0] for name, several in columns}

    def require_columns(self, names: Iterable[str], where: str) -> None:
        """Refuses a table without the text, or with a column that has the name of a new one."""
        names = list(names)
        if names.count(self.text_column) > 1:
            raise ValueError(f"{where} has {names.count(self.text_column)} columns {self.text_column!r}: rename them.")
        if self.text_column not in names:
            shown = ", ".join(f"{name!r:.40}" for name in names)
            raise ValueError(f"{where} has no column {self.text_column!r} among {shown}: set --text_column.")
        for name in self.new_names:
            if name in names:
                raise ValueError(f"{where} already has a column {name!r}: set --translation_column to another name.")

    def require_text(self, value: Any, where: str) -> str:
        """Returns a value of the text column; a missing one is an empty text."""
        if not isinstance(value, str | None):
            raise ValueError(f"{where}: {value!r:.40} in column {self.text_column!r} is not text.")
        return value or ""


class JsonRow(NamedTuple):
    """A line of JSON as it is, and the text in it."""

    line: str
    text: str


@dataclass
class JsonLines(Table[JsonRow]):
    """JSON lines: an object on each line."""

    def number_and_digest(self) -> tuple[int, str]:
        # Every row is read before the first is translated, so that a wrong one is reported in time.
        return Lines(lambda: (row.line for row in self.rows())).number_and_digest()

    def rows(self) -> Iterator[JsonRow]:
        for path in existing(self.files):
            for where, line, row in json_rows(path):
                self.require_columns(row, where)
                yield JsonRow(line, self.require_text(row[self.text_column], where))

    def text_of(self, row: JsonRow) -> str:
        return row.text

    def write(self, path: Path, translated: Iterable[tuple[JsonRow, list[Hypothesis]]]) -> None:
        with _open_text(path, self.suffix) as file:
            for row, hypotheses in translated:
                # The columns are added to the line itself. Reading and writing it again could change numbers.
                before = row.line.rstrip().removesuffix("}").rstrip()
                added = json.dumps(self.new_columns(hypotheses), ensure_ascii=False).removeprefix("{")
                file.write(f"{before}, {added}\n")


class ParquetRow(NamedTuple):
    """A row as a batch of rows and its number there, and the text in it."""

    batch: "pa.RecordBatch"
    number: int
    text: str


@dataclass
class Parquet(Table[ParquetRow]):
    """Parquet. Columns of any type are copied as they are."""

    def number_and_digest(self) -> tuple[int, str]:
        digest, number = hashlib.sha256(), 0
        schema = self._schema()
        for path in existing(self.files):
            with open_parquet(path) as table:
                if table.schema_arrow.remove_metadata() != schema:
                    raise ValueError(f"{path} has other columns than {self.files[0]}: translate them one by one.")
                number += table.metadata.num_rows
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return number, digest.hexdigest()[:16]

    def rows(self) -> Iterator[ParquetRow]:
        for path in existing(self.files):
            before = 0
            with open_parquet(path) as table:
                self.require_columns(table.schema_arrow.names, str(path))
                for batch in table.iter_batches(ROWS_AT_A_TIME):
                    for number, value in enumerate(batch.column(self.text_column).to_pylist()):
                        text = self.require_text(value, f"{path}, row {before + number + 1}")
                        yield ParquetRow(batch, number, text)
                    before += len(batch)

    def text_of(self, row: ParquetRow) -> str:
        return row.text

    def write(self, path: Path, translated: Iterable[tuple[ParquetRow, list[Hypothesis]]]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields = self._new_fields()
        schema = pa.schema([*self._schema(), *fields])
        with pq.ParquetWriter(path, schema) as writer:
            for _, group in groupby(translated, key=lambda pair: id(pair[0].batch)):
                pairs = list(group)
                first = pairs[0][0]
                columns = list(first.batch.slice(first.number, len(pairs)).columns)
                added = [self.new_columns(hypotheses) for _, hypotheses in pairs]
                columns += [pa.array([row[field.name] for row in added], field.type) for field in fields]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))

    def join(self, parts: Sequence[Path], path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with pq.ParquetWriter(path, pa.schema([*self._schema(), *self._new_fields()])) as writer:
            for part in parts:
                with open_parquet(part) as table:
                    for batch in table.iter_batches(ROWS_AT_A_TIME):
                        writer.write_batch(batch)

    def _schema(self) -> "pa.Schema":
        first = existing(self.files)[0]
        with open_parquet(first) as table:
            self.require_columns(table.schema_arrow.names, str(first))
            return table.schema_arrow.remove_metadata()

    def _new_fields(self) -> "list[pa.Field]":
        import pyarrow as pa

        kinds = [pa.string() if name == "word_alignment" else pa.float64() for name in self.details]
        columns = zip(self.new_names, [pa.string(), *kinds], strict=True)
        return [pa.field(name, pa.list_(kind) if self.n_best > 1 else kind) for name, kind in columns]


# --- the format of files ---


def format_of(file: str) -> str:
    """Returns the format of a file by its name."""
    kind = kind_of(Path(file))
    return "Parquet" if kind in PARQUET else "JSON lines" if kind in JSON_LINES else "text"


def corpus_of(
    files: Sequence[str],
    *,
    details: Sequence[str] = (),
    n_best: int = 1,
    **columns: str | None,
) -> Corpus:
    """Returns a corpus of the format of its files.

    Args:
        files: The files, all of one format. They may be gzipped, and the output is if the first one is.
        details: Which of `DETAILS` to write beside each translation.
        n_best: Number of translations of each row.
        columns: `text_column` and `translation_column` of tables; `None` for the usual names.
    """
    formats = {format_of(str(path)) for path in existing(files)}
    if len(formats) > 1:
        raise ValueError(f"The input has several formats ({', '.join(sorted(formats))}): translate them one by one.")
    names = {name: value for name, value in columns.items() if value is not None}
    options: dict[str, Any] = {"details": list(details), "n_best": n_best, **names}
    gzipped = ".gz" if files[0].endswith(".gz") else ""
    if formats == {"Parquet"}:
        return Parquet(tuple(files), **options, suffix=".parquet")
    if formats == {"JSON lines"}:
        return JsonLines(tuple(files), **options, suffix=f".jsonl{gzipped}")
    if names:
        raise ValueError(f"{files[0]} has lines of text and no columns: leave out --{next(iter(names))}.")
    return Lines(partial(lines_in_files, tuple(files)), list(details), suffix=f".txt{gzipped}")


@contextmanager
def _open_text(path: Path, suffix: str) -> Iterator[TextIO]:
    """Opens a text file for writing, compressed if the suffix says so. Equal text gives equal bytes."""
    # JSON has the same escapes for lone surrogates as Python, and lines of text have none.
    options: dict[str, Any] = {"encoding": "utf-8", "newline": "\n", "errors": "backslashreplace"}
    if not suffix.endswith(".gz"):
        with path.open("w", **options) as text:
            yield text
        return
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, **options) as text,
    ):
        yield text
