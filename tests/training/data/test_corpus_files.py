"""Every format, plain and gzipped, with Windows line endings, and every way in which a file can be wrong."""

import csv
import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vanilla_transformer.training.data.corpus_files import pairs_in_files


PAIRS = [
    ("A man.", "Ein Mann."),
    ('He says "yes".', 'Er sagt „ja", ja.'),
    ("", ""),
    ("a\u2028b\x0bc", "NA"),
    ("null", "größer 🙂"),
    (" x ", "\tmit Tab".strip("\t")),
]


def write_text(folder, ending="\n", final=True):
    paths = []
    for side, language in enumerate(["en", "de"]):
        path = folder / f"train.{language}"
        text = ending.join(pair[side] for pair in PAIRS) + (ending if final else "")
        path.write_bytes(text.encode())
        paths.append(str(path))
    return paths


def write_tsv(folder):
    path = folder / "train.tsv"
    path.write_bytes("\n".join("\t".join(row) for row in [("de", "en"), *((t, s) for s, t in PAIRS)]).encode())
    return [str(path)]


def write_csv(folder):
    path = folder / "train.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "en", "de"), *((i, *pair) for i, pair in enumerate(PAIRS))])
    return [str(path)]


def write_flat_json(folder):
    path = folder / "train.jsonl"
    path.write_text("\n".join(json.dumps({"source": s, "target": t}) for s, t in PAIRS), encoding="utf-8")
    return [str(path)]


def write_nested_json(folder):
    path = folder / "train.jsonl"
    rows = [json.dumps({"translation": {"de": t, "en": s}}, ensure_ascii=False) for s, t in PAIRS]
    path.write_text("\n".join(rows), encoding="utf-8")
    return [str(path)]


def write_parquet(folder):
    path = folder / "train.parquet"
    pq.write_table(pa.table({"de": [t for _, t in PAIRS], "en": [s for s, _ in PAIRS]}), path)
    return [str(path)]


def write_nested_parquet(folder):
    path = folder / "train.parquet"
    pq.write_table(pa.table({"translation": [{"en": s, "de": t} for s, t in PAIRS]}), path)
    return [str(path)]


WRITERS = [write_text, write_tsv, write_csv, write_flat_json, write_nested_json, write_parquet, write_nested_parquet]


def read(files, source="en", target="de", columns=()):
    return list(pairs_in_files(files, source, target, columns))


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("write", WRITERS)
def test_every_format_gives_the_pairs_as_they_are(tmp_path, write, zipped):
    files = write(tmp_path)
    if zipped:
        for name in files:
            with open(name, "rb") as plain, gzip.open(f"{name}.gz", "wb") as packed:
                packed.write(plain.read())
        files = [f"{name}.gz" for name in files]
    assert read(files) == PAIRS


@pytest.mark.parametrize("write", [write_text, write_tsv, write_csv, write_nested_json, write_nested_parquet])
def test_direction_is_just_the_languages(tmp_path, write):
    assert read(write(tmp_path), "de", "en") == [(t, s) for s, t in PAIRS]


def test_windows_line_endings_a_byte_order_mark_and_a_missing_last_newline_are_not_text(tmp_path):
    assert read(write_text(tmp_path, ending="\r\n")) == PAIRS
    assert read(write_text(tmp_path, final=False)) == PAIRS
    english = tmp_path / "train.en"
    english.write_bytes(b"\xef\xbb\xbf" + english.read_bytes())
    assert read(write_text(tmp_path)) == PAIRS


def test_a_prefix_a_pattern_and_files_in_any_order_find_their_sides(tmp_path):
    source, target = write_text(tmp_path)
    assert read([str(tmp_path / "train")]) == PAIRS
    assert read([str(tmp_path / "train.*")]) == PAIRS
    assert read([target, source]) == PAIRS
    (tmp_path / "more.en").write_text("x\n")
    (tmp_path / "more.de").write_text("y\n")
    assert sorted(read([str(tmp_path / "*.en"), str(tmp_path / "*.de")])) == sorted([*PAIRS, ("x", "y")])


def test_two_files_without_a_language_in_their_names_are_source_and_target(tmp_path):
    for name, text in [("input.txt", "a\nb\n"), ("output.txt", "c\nd\n")]:
        (tmp_path / name).write_text(text)
    assert read([str(tmp_path / "input.txt"), str(tmp_path / "output.txt")]) == [("a", "c"), ("b", "d")]


def test_a_table_without_a_header_gets_its_columns_named(tmp_path):
    (tmp_path / "pairs.tsv").write_text("1\tja\tyes\n2\tnein\tno\n")
    assert read([str(tmp_path / "pairs.tsv")], columns=["id", "de", "en"]) == [("yes", "ja"), ("no", "nein")]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.en": "a\nb\n", "train.de": "c\n"}, r"train\.en has 2 lines but .*train\.de has 1: line n of one"),
        ({"train.en": b"a\n\xff\xfe\n", "train.de": "c\nd\n"}, r"train\.en, line 2: byte 1 is not UTF-8.*iconv"),
        ({"train.en": "a\n"}, r"no file .*train' and no .*train\.de \(plain or \.gz\): check the path"),
        ({"x.tsv": "fr\tde\na\tb\n"}, r"x\.tsv, line 1: the header has no 'en' among its columns 'fr', 'de'"),
        ({"x.tsv": "en\tde\na\tb\na\n"}, r"x\.tsv, line 3: 1 columns where there should be 2 \(en, de\)"),
        ({"x.csv": 'en,de\na,"b\n'}, r"x\.csv, line 2: not valid CSV"),
        ({"x.jsonl": '{"en": "a", "de": "b"}\n{"en": "a"\n'}, r"x\.jsonl, line 2: not valid JSON.*one object"),
        ({"x.jsonl": '["a", "b"]\n'}, r"x\.jsonl, line 1: \['a', 'b'\] is not an object"),
        ({"x.jsonl": '{"en": "a", "fr": "b"}\n'}, r"x\.jsonl, line 1 has no 'de' among its columns 'en', 'fr'"),
        ({"x.jsonl": '{"en": 3, "de": "b"}\n'}, r"x\.jsonl, line 1: 3 is not text"),
        ({"x.parquet": b"not parquet"}, r"x\.parquet is not a complete Parquet file"),
        (
            {"train.en.gz": gzip.compress(b"a\n" * 99)[:12] + b"\xff" * 20, "train.de": "a\n"},
            r"train\.en\.gz is not a complete gzip",
        ),
        ({"train.en.gz": b"\x1f\x8b\x08\x00broken", "train.de": "a\n"}, r"train\.en\.gz is not a complete gzip file"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_remedy(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    name = next(iter(files))
    pattern = str(tmp_path / ("train" if name.startswith("train") else name))
    with pytest.raises(ValueError, match=f"(?s){message}"):
        read([pattern])


def test_the_same_side_twice_is_refused(tmp_path):
    write_text(tmp_path)
    with gzip.open(tmp_path / "train.en.gz", "wb") as packed:
        packed.write(b"x\n")
    with pytest.raises(ValueError, match=r"are the same side of one pair"):
        read([str(tmp_path / "train.*")])


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    for name in ("a.en", "b.de", "c.txt"):
        (tmp_path / name).write_text("x\n")
    with pytest.raises(ValueError, match=r"a\.en has no other side: give .*a\.de too"):
        read([str(tmp_path / "a.en"), str(tmp_path / "b.de")])
    with pytest.raises(ValueError, match=r"c\.txt is neither a table .* nor named after a language"):
        read([str(tmp_path / "c.txt")])
    with pytest.raises(ValueError, match=r"No file matches '.*nothing\*'"):
        read([str(tmp_path / "nothing*")])
