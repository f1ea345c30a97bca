"""Rows go in and out unchanged, with a translation each, in every format."""

import datetime
import gzip
import json
import pickle
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vanilla_transformer import Hypothesis
from vanilla_transformer.bulk_translation import shard_formats as corpus_formats
from vanilla_transformer.bulk_translation.shard_formats import corpus_of


def hypotheses(text: str, number: int = 1) -> list[Hypothesis]:
    return [Hypothesis(f"{text.upper()}{rank or ''}", float(-rank)) for rank in range(number)]


def translated(corpus, folder, sizes, number=1):
    """Writes rows in files of the given sizes, joins them, and returns the whole."""
    rows, parts = list(pickle.loads(pickle.dumps(corpus)).rows()), []
    assert corpus.number_and_digest()[0] == len(rows) == sum(sizes)
    for size in sizes:
        chosen, rows = rows[:size], rows[size:]
        parts.append(folder / f"part{len(parts)}")
        corpus.write(parts[-1], ((row, hypotheses(corpus.text_of(row), number)) for row in chosen))
    corpus.join(parts, folder / f"whole{corpus.suffix}")
    return folder / f"whole{corpus.suffix}"


def make(files, *, details=(), n_best=1, **columns):
    return corpus_of([str(file) for file in files], details=details, n_best=n_best, **columns)


def test_lines(tmp_path):
    (tmp_path / "a.en").write_bytes(b"one\r\ntwo\n\n")
    (tmp_path / "b.en.gz").write_bytes(gzip.compress(b"four\xe2\x80\xa8\nfive"))
    corpus = make([tmp_path / "a.en", tmp_path / "b.en.gz"])
    assert translated(corpus, tmp_path, [2, 0, 3]).read_bytes() == b"ONE\nTWO\n\nFOUR\xe2\x80\xa8\nFIVE\n"
    scored = make([tmp_path / "a.en"], details=("score",), n_best=2)
    assert translated(scored, tmp_path, [3], number=2).read_text().splitlines()[:2] == [
        "0.000000\tONE",
        "-1.000000\tONE1",
    ]


def test_gzipped_lines_become_gzipped_lines_with_the_same_bytes_each_time(tmp_path):
    (tmp_path / "in.en.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    corpus = make([tmp_path / "in.en.gz"])
    whole = translated(corpus, tmp_path, [1, 2])
    assert whole.name == "whole.txt.gz"
    assert gzip.decompress(whole.read_bytes()) == b"ONE\nTWO\nTHREE\n"
    (tmp_path / "again").mkdir()
    assert translated(corpus, tmp_path / "again", [1, 2]).read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("gz", ["", ".gz"])
def test_json_lines_keep_their_columns_as_they_are(tmp_path, gz):
    lines = ['{"id": 1.10, "text": "one"}', '{"text": null, "big": 123456789012345678901234567890, "x": {"y": [1]} } ']
    lines.append('{"text": "tw\\u00f6", "lone": "\\ud800"}')
    content = "".join(f"{line}\n" for line in lines).encode()
    path = tmp_path / f"in.jsonl{gz}"
    path.write_bytes(gzip.compress(content) if gz else content)
    whole = translated(make([path]), tmp_path, [1, 2]).read_bytes()
    found = (gzip.decompress(whole) if gz else whole).decode().splitlines()
    assert found[0] == '{"id": 1.10, "text": "one", "translation": "ONE"}'
    for line, before, translation in zip(found, lines, ["ONE", "", "TWÖ"], strict=True):
        assert json.loads(line) == {**json.loads(before), "translation": translation}


def test_several_translations_and_scores_are_lists(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"de": "one"}\n')
    options = {"details": ("score",), "n_best": 2, "text_column": "de", "translation_column": "en"}
    whole = translated(make([tmp_path / "in.jsonl"], **options), tmp_path, [1], number=2)
    assert json.loads(whole.read_text()) == {"de": "one", "en": ["ONE", "ONE1"], "en_score": [0.0, -1.0]}
    pq.write_table(pa.table({"de": ["one"]}), tmp_path / "in.parquet")
    whole = translated(make([tmp_path / "in.parquet"], **options), tmp_path, [1], number=2)
    assert pq.read_table(whole).to_pylist() == [{"de": "one", "en": ["ONE", "ONE1"], "en_score": [0.0, -1.0]}]


def test_parquet_keeps_columns_of_any_type(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_formats, "ROWS_AT_A_TIME", 3)
    number = 10
    table = pa.table(
        {
            "text": pa.array([f"text {row}" if row % 4 else None for row in range(number)]).dictionary_encode(),
            "price": pa.array([Decimal(row) / 8 for row in range(number)], pa.decimal128(20, 4)),
            "time": pa.array(
                [datetime.datetime(2026, 1, 1, microsecond=row) for row in range(number)], pa.timestamp("ns")
            ),
            "nested": pa.array(
                [{"a": [row], "b": None} for row in range(number)],
                pa.struct({"a": pa.list_(pa.int8()), "b": pa.null()}),
            ),
        }
    )
    pq.write_table(table.slice(0, 4), tmp_path / "a.parquet")
    pq.write_table(table.slice(4), tmp_path / "b.parquet")
    whole = translated(make([tmp_path / "a.parquet", tmp_path / "b.parquet"]), tmp_path, [2, 0, 5, 3])
    found = pq.read_table(whole)
    assert found.drop_columns("translation").equals(table.cast(found.drop_columns("translation").schema))
    assert found["translation"].to_pylist() == [f"TEXT {row}" if row % 4 else "" for row in range(number)]
    first = whole.read_bytes()
    assert (
        translated(make([tmp_path / "a.parquet", tmp_path / "b.parquet"]), tmp_path, [2, 0, 5, 3]).read_bytes()
        == first
    )


def test_the_digest_is_that_of_the_content(tmp_path):
    for name, content in [("a.en", b"one\ntwo\n"), ("b.en.gz", gzip.compress(b"one\r\ntwo")), ("c.en", b"one two\n")]:
        (tmp_path / name).write_bytes(content)
    a, b, c = (make([tmp_path / name]).number_and_digest() for name in ("a.en", "b.en.gz", "c.en"))
    assert a == b != c


def read_all(files, columns) -> None:
    corpus = make(files, **columns)
    corpus.number_and_digest()
    list(corpus.rows())


@pytest.mark.parametrize(
    ("files", "columns", "message"),
    [
        ({"a.jsonl": b'{"body": "x"}\n'}, {}, r"a.jsonl, line 1 has no column 'text' among 'body': set --text_column"),
        ({"a.jsonl": b'{"text": "x"}\n{"text": 3}\n'}, {}, r"a.jsonl, line 2: 3 in column 'text' is not text"),
        ({"a.jsonl": b'{"text": "x"}\n["x"]\n'}, {}, r"a.jsonl, line 2: \['x'\] is not an object"),
        (
            {"a.jsonl": b'{"text": "x", "translation": 1}\n'},
            {},
            r"has a column 'translation': set --translation_column",
        ),
        ({"a.en": b"x\n", "b.jsonl": b"{}\n"}, {}, r"several formats \(JSON lines, text\): translate them one by one"),
        ({"a.en": b"x\n"}, {"text_column": "en"}, r"a.en has lines of text and no columns: leave out --text_column"),
        ({"a.parquet": b"PAR1 but not whole"}, {}, r"a.parquet is not a complete Parquet file"),
        ({}, {}, r"There is no file 'nowhere.en'"),
    ],
)
def test_what_is_wrong_is_named_with_the_remedy(tmp_path, files, columns, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_all([tmp_path / name for name in files] or ["nowhere.en"], columns)


def test_json_lines_are_checked_before_the_first_is_translated(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "x"}\n{"texx": "y"}\n')
    with pytest.raises(ValueError, match=r"a.jsonl, line 2 has no column 'text'"):
        make([tmp_path / "a.jsonl"]).number_and_digest()


def test_a_table_with_two_columns_of_one_name_is_refused(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["x"]), pa.array(["y"])], names=["text", "text"])
    pq.write_table(twice, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet has 2 columns 'text': rename them"):
        make([tmp_path / "a.parquet"]).number_and_digest()


def test_parquet_files_with_other_columns_are_refused(tmp_path):
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["x"], "id": [1]}), tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b.parquet has other columns than .*a.parquet"):
        make([tmp_path / "a.parquet", tmp_path / "b.parquet"]).number_and_digest()
