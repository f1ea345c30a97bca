"""Parallel text in files: paired plain text, TSV, CSV, JSON lines and Parquet, each also gzipped.

Every reader yields `(source, target)`. An error names the file and line; text is never truncated silently.
"""

import csv
import glob
import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from vanilla_transformer.hub.languages import Languages, differ
from vanilla_transformer.safe_files.input_files import json_rows, kind_of, lines_of, open_parquet
from vanilla_transformer.training.data.sacrebleu_sets import PREFIX, files_of_set


Pairs = Iterator[tuple[str, str]]
Names = list[tuple[str, str]]  # what the columns of source and target may be called: the first that fits is chosen


def pairs_in_files(
    files: Iterable[str],
    source_lang: str,
    target_lang: str,
    columns: Iterable[str] = (),
    *,
    several: bool = False,
) -> Pairs:
    """Yields all pairs of several files.

    Args:
        files: Prefixes (`data/train` for `data/train.en` + `data/train.de`), paired files, tables, or glob patterns.
        source_lang: Suffix or column of the source side.
        target_lang: Suffix or column of the target side.
        columns: Column names of tables without a header line.
        several: Whether other directions are read from the same files: see `column_names`.
    """
    names = column_names(source_lang, target_lang, several)
    for read in _readers(files, source_lang, target_lang, names, tuple(columns)):
        yield from read()


def _readers(
    files: Iterable[str], source_lang: str, target_lang: str, names: Names, columns: tuple[str, ...] = ()
) -> list[Callable[[], Pairs]]:
    """Returns a reader for each table or pair of text files. A missing file raises before anything is read."""
    paths = [path for pattern in files for path in _expand(pattern, source_lang, target_lang)]
    texts = [path for path in paths if kind_of(path) not in TABLES]
    tables = [path for path in paths if kind_of(path) in TABLES]
    readers: list[Callable[[], Pairs]] = [
        partial(_read_text, *pair) for pair in _pair_up(texts, source_lang, target_lang)
    ]
    readers += [partial(TABLES[kind_of(path)], path, names, columns) for path in tables]
    return readers


def state_of(files: Iterable[str], source_lang: str, target_lang: str) -> tuple:
    """Returns the sizes and times of files, on which a cached copy of them depends."""
    paths = [path for pattern in files for path in _expand(pattern, source_lang, target_lang)]
    return tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths)


def digests_of(files: Iterable[str], source_lang: str, target_lang: str) -> dict[str, str]:
    """Returns the SHA-256 of the content of each file."""
    digests = {}
    for path in (path for pattern in files for path in _expand(pattern, source_lang, target_lang)):
        with path.open("rb") as file:
            digests[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


# --- finding files ---


def files_of_direction(entries: Iterable[str], source_lang: str, target_lang: str) -> list[tuple[int, str]]:
    """Returns the files that serve one of several directions, each with the number of its entry.

    An entry `en-de=FILES` serves the two directions of its pair, any other entry serves every direction. In a path,
    `{source}` and `{target}` stand for the languages; if there are no such files, they stand for them the other way
    round, because a bitext serves both directions.

    Args:
        entries: Entries of `train_files`, for example.
        source_lang: Source language of the direction.
        target_lang: Target language of the direction.
    """
    chosen = []
    for number, entry in enumerate(entries):
        pair, equals, path = entry.partition("=")
        if equals and "-" in pair and "/" not in pair:
            if set(Languages.parse(pair)) != {source_lang, target_lang}:
                continue
        else:
            path = entry
        both = [
            path.replace("{source}", first).replace("{target}", second)
            for first, second in ((source_lang, target_lang), (target_lang, source_lang))
        ]
        exists = (_exists(name, source_lang, target_lang) for name in both)
        chosen.append((number, next((name for name, there in zip(both, exists, strict=True) if there), both[0])))
    return chosen


def _exists(pattern: str, source_lang: str, target_lang: str) -> bool:
    try:
        return bool(_expand(pattern, source_lang, target_lang))
    except ValueError:
        return False


def _expand(pattern: str, source_lang: str, target_lang: str) -> list[Path]:
    if pattern.startswith(PREFIX):
        return files_of_set(pattern, source_lang, target_lang)[:2]
    if glob.has_magic(pattern):
        paths = sorted(Path(path) for path in glob.glob(pattern))
        if not paths:
            raise ValueError(f"No file matches {pattern!r}: check the path.")
        return paths
    if Path(pattern).is_file():
        return [Path(pattern)]
    sides = {f"{pattern}.{language}": _first_file(f"{pattern}.{language}") for language in (source_lang, target_lang)}
    if missing := [name for name, path in sides.items() if path is None]:
        raise ValueError(f"There is no file {pattern!r} and no {' or '.join(missing)} (plain or .gz): check the path.")
    return [path for path in sides.values() if path is not None]


def _first_file(name: str) -> Path | None:
    return next((Path(path) for path in (name, f"{name}.gz") if Path(path).is_file()), None)


def _pair_up(paths: list[Path], source_lang: str, target_lang: str) -> list[tuple[Path, Path]]:
    """Returns pairs of text files: those that differ only in the language suffix, or any two files as they are."""
    if len(paths) == 2 and not {kind_of(path) for path in paths} & {f".{source_lang}", f".{target_lang}"}:
        require_language(paths[0], source_lang)
        require_language(paths[1], target_lang)
        return [(paths[0], paths[1])]
    sides: dict[str, dict[str, Path]] = {}
    for path in paths:
        language = kind_of(path).removeprefix(".")
        if language not in (source_lang, target_lang):
            raise ValueError(
                f"{path} is neither a table ({', '.join(TABLES)}) nor named after a language (.{source_lang} or "
                f".{target_lang}): rename it, or set source_lang and target_lang."
            )
        stem = str(path.with_name(path.name.removesuffix(".gz"))).removesuffix(f".{language}")
        if language in sides.setdefault(stem, {}):
            raise ValueError(f"{sides[stem][language]} and {path} are the same side of one pair: give one of them.")
        sides[stem][language] = path
    for stem, files in sides.items():
        if len(files) < 2:
            missing = target_lang if source_lang in files else source_lang
            raise ValueError(f"{next(iter(files.values()))} has no other side: give {stem}.{missing} too.")
    return [(files[source_lang], files[target_lang]) for files in sides.values()]


def require_language(path: str | Path, language: str | None) -> None:
    """Refuses a file whose name ends in the code of another language, such as `.de` for French."""
    code = kind_of(Path(path)).removeprefix(".")
    if language is not None and len(code) == 2 and code.isalpha() and differ(code, language):
        raise ValueError(f"{path} is {code!r} by its name, but {language!r} is needed: give that file.")


def _read_text(source_path: Path, target_path: Path) -> Pairs:
    source_count = target_count = 0
    for source, target in zip_longest(lines_of(source_path), lines_of(target_path)):
        source_count += source is not None
        target_count += target is not None
        if source_count == target_count:
            yield source, target
    if source_count != target_count:
        raise ValueError(
            f"{source_path} has {source_count:,} lines but {target_path} has {target_count:,}: line n of one must be "
            "the translation of line n of the other. Find the first line where they differ."
        )


def column_names(source_lang: str, target_lang: str, several: bool = False) -> Names:
    """Returns what the columns of a direction may be called: the languages or, if it is the only direction, `source`
    and `target`."""
    return [(source_lang, target_lang), *([] if several else [("source", "target")])]


def choose_columns(columns: Iterable[str], names: Names, where: str) -> tuple[str, str]:
    """Returns the names of the source and target columns.

    Args:
        columns: The columns that there are.
        names: What they may be called: the languages first.
        where: The table, for the message.
    """
    columns = list(columns)
    for wanted in names:
        if set(wanted) <= set(columns):
            return wanted
    languages = names[0]
    missing = " and ".join(repr(language) for language in languages if language not in columns)
    shown = ", ".join(repr(name if len(name) <= 40 else f"{name[:40]} ...") for name in columns)
    others = "".join(f" or {source!r} and {target!r}" for source, target in names[1:])
    raise ValueError(
        f"{where} has no {missing} among its columns {shown}: name them after the languages{others}, "
        "or set source_lang and target_lang to what they are called. A table without a header line needs its column "
        f"names: --columns {' '.join(languages)}."
    )


def _read_rows(rows: Iterator[tuple[int, list[str]]], path: Path, names: Names, columns: tuple[str, ...]) -> Pairs:
    """Yields pairs from numbered rows of cells. The first row names the columns, unless `columns` does."""
    header = list(columns or next(rows, (0, []))[1])
    where = f"The list of columns given for {path}" if columns else f"{path}, line 1: the header"
    source, target = (header.index(name) for name in choose_columns(header, names, where))
    for number, cells in rows:
        if len(cells) != len(header):
            raise ValueError(
                f"{path}, line {number}: {len(cells)} columns where there should be {len(header)} "
                f"({', '.join(header)})."
            )
        yield cells[source], cells[target]


def _read_tsv(path: Path, names: Names, columns: tuple[str, ...]) -> Pairs:
    # No quoting: in parallel text, a quotation mark is text.
    rows = ((number, line.split("\t")) for number, line in enumerate(lines_of(path), start=1))
    return _read_rows(rows, path, names, columns)


def _read_csv(path: Path, names: Names, columns: tuple[str, ...]) -> Pairs:
    reader = csv.reader(lines_of(path, keep_ends=True), strict=True)
    rows = ((reader.line_num, cells) for cells in reader)
    try:
        yield from _read_rows(rows, path, names, columns)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not valid CSV ({error}).") from error


def _read_json_lines(path: Path, names: Names, columns: tuple[str, ...]) -> Pairs:
    for where, _, row in json_rows(path):
        yield _pair_of(row, names, where)


def _pair_of(row: dict[str, Any], names: Names, where: str) -> tuple[str, str]:
    row = row["translation"] if isinstance(row.get("translation"), dict) else row
    source, target = (row[name] for name in choose_columns(row, names, where))
    for side in (source, target):
        if not isinstance(side, str | None):
            raise ValueError(f"{where}: {side!r:.40} is not text.")
    return source or "", target or ""


def _read_parquet(path: Path, names: Names, columns: tuple[str, ...]) -> Pairs:
    number = 0
    with open_parquet(path) as table:
        for batch in table.iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield _pair_of(row, names, f"{path}, row {number}")


TABLES: dict[str, Callable[[Path, Names, tuple[str, ...]], Pairs]] = {
    ".tsv": _read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".json": _read_json_lines,
    ".parquet": _read_parquet,
}
