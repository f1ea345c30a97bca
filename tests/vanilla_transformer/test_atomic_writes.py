"""A file or folder is complete under its name, or it is not there."""

import json
import os
import threading

import pytest

from vanilla_transformer.atomic_writes import (
    one_line,
    replacing,
    whole_file,
    whole_folder,
    write_json,
    write_lines,
    write_text,
)


def permissions(path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture
def mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_text_json_and_lines(tmp_path, mask):
    write_text(tmp_path / "new" / "a.txt", "Käse\n")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "Käse\n".encode()
    write_json(tmp_path / "a.json", {"Käse": [1, 2]})
    assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8")) == {"Käse": [1, 2]}
    assert "Käse" in (tmp_path / "a.json").read_text(encoding="utf-8")
    write_lines(tmp_path / "lines", iter(["one", "two"]))
    assert (tmp_path / "lines").read_bytes() == b"one\ntwo\n"
    write_lines(tmp_path / "lines", [])
    assert (tmp_path / "lines").read_bytes() == b""
    assert permissions(tmp_path / "lines") == 0o666 & ~mask
    assert {path.name for path in tmp_path.iterdir()} == {"new", "a.json", "lines"}


def test_an_error_leaves_the_previous_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, 1)
    with pytest.raises(TypeError):
        write_json(path, {1, 2})
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_sees_one_version_or_the_other(tmp_path):
    path = tmp_path / "numbers"
    versions = [str(number) * 5000 for number in range(2)]
    write_text(path, versions[0])

    def write(version: str) -> None:
        for _ in range(50):
            write_text(path, version)

    threads = [threading.Thread(target=write, args=(version,)) for version in versions]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert path.read_text() in versions
    for thread in threads:
        thread.join()
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_written_line_by_line_takes_its_name_at_the_end(tmp_path):
    path = tmp_path / "new" / "out.txt"
    with whole_file(path) as file:
        file.write("one\n")
        assert not path.exists()
    assert path.read_text() == "one\n"
    with pytest.raises(ValueError, match="already there: choose another file, or pass --overwrite"), whole_file(path):
        pass
    with whole_file(path, overwrite=True) as file:
        file.write("two\n")
    assert path.read_text() == "two\n"


def test_the_lines_before_an_interruption_are_kept_beside_the_file(tmp_path):
    path = tmp_path / "out.txt"

    def interrupted(text: str) -> None:
        with whole_file(path) as file:
            file.write(text)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted("")
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        interrupted("one\n")
    assert {entry.name for entry in tmp_path.iterdir()} == {"out.txt.partial"}


def test_a_folder_replaces_the_previous_one_only_without_an_error(tmp_path, mask):
    path = tmp_path / "folder"
    for number in range(2):
        with replacing(path) as folder:
            (folder / f"{number}").mkdir()
            write_text(folder / f"{number}" / "file", "text")
            (folder / f"{number}" / "file").chmod(0o600)
    assert [entry.name for entry in path.iterdir()] == ["1"]
    assert permissions(path) == 0o777 & ~mask
    assert permissions(path / "1" / "file") == 0o666 & ~mask
    with pytest.raises(ZeroDivisionError), replacing(path):
        _ = 1 / 0
    assert [entry.name for entry in path.iterdir()] == ["1"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (["a.txt"], {}, "is already there: choose another folder, or pass --overwrite"),
        (["run.json"], {"overwrite": True}, "holds a training run, which is never replaced"),
        (["checkpoint-5"], {"overwrite": True}, "holds a training run, which is never replaced"),
        (["a.txt", "b.txt"], {"overwrite": True, "made_of": ["a.txt"]}, "holds b.txt, no part of an older result"),
        (["a.txt"], {"overwrite": True, "known_by": "config.json"}, "has no config.json, so it is no older result"),
    ],
)
def test_other_folders_are_never_replaced(tmp_path, files, options, message):
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=message), whole_folder(tmp_path, **options):
        pass
    assert {entry.name for entry in tmp_path.iterdir()} == set(files)


def test_an_empty_folder_and_an_older_result_are_replaced(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    for number in range(2):
        with whole_folder(path, known_by="a.txt", made_of=["a.txt"], overwrite=bool(number)) as folder:
            write_text(folder / "a.txt", str(number))
    assert (path / "a.txt").read_text() == "1"
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="file is a file: choose another"), whole_folder(tmp_path / "file"):
        pass


def test_a_text_fits_one_line():
    assert one_line("one\r\ntwo\n\nthree") == "one two three"
