"""A file or folder is complete under its name, or it is not there."""

import errno
import json
import os
import socket
import stat
import threading

import pytest

from vanilla_transformer.safe_files.atomic_writes import (
    one_line,
    remove_unfinished,
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
        with whole_folder(path, overwrite=True) as folder:
            (folder / f"{number}").mkdir()
            write_text(folder / f"{number}" / "file", "text")
            (folder / f"{number}" / "file").chmod(0o600)
    assert [entry.name for entry in path.iterdir()] == ["1"]
    assert permissions(path) == 0o777 & ~mask
    assert permissions(path / "1" / "file") == 0o666 & ~mask
    with pytest.raises(ZeroDivisionError), whole_folder(path, overwrite=True):
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


# --- two writers ---


def test_two_writers_of_one_file_do_not_mix_their_lines(tmp_path):
    path = tmp_path / "out"
    with whole_file(path) as file:
        file.write("mine\n")
        with (
            pytest.raises(OSError, match=r"Another process is writing .*out: wait until it ends, or"),
            whole_file(path),
        ):
            pass
        file.write("mine too\n")
    assert path.read_text() == "mine\nmine too\n"


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "out"
    output = whole_file(path)
    output.__enter__().write("mine\n")
    path.write_text("another's\n")
    with pytest.raises(ValueError, match="is already there"):
        output.__exit__(None, None, None)
    assert (path.read_text(), (tmp_path / "out.partial").read_text()) == ("another's\n", "mine\n")


def test_two_writers_of_one_folder_take_turns_or_are_told(tmp_path):
    path = tmp_path / "out"
    with whole_folder(path) as folder:
        (folder / "a").touch()
        with pytest.raises(OSError, match=r"Another process is writing .*out"), whole_folder(path):
            pass
        waiting = threading.Thread(target=lambda: whole_folder(path, overwrite=True, wait=True).__enter__())
        waiting.start()
    waiting.join()
    assert [entry.name for entry in path.iterdir()] == ["a"]


def test_a_partial_file_is_continued(tmp_path):
    path = tmp_path / "out"
    (tmp_path / "out.partial").write_text("one\n")
    with whole_file(path, resume=True) as file:
        assert file.read() == "one\n"
        file.write("two\n")
    assert path.read_text() == "one\ntwo\n"
    with whole_file(tmp_path / "new", resume=True) as file:
        assert file.read() == ""
        file.write("first\n")
    assert (tmp_path / "new").read_text() == "first\n"


# --- what is not a plain file ---


def test_devices_and_pipes_are_written_and_never_replaced(tmp_path):
    with whole_file("/dev/null") as file:
        file.write("anything\n")
    with whole_file("/dev/null", overwrite=True) as file:
        file.write("anything\n")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert not os.path.exists("/dev/null.partial")
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with whole_file(pipe, overwrite=True) as file:
        file.write("through\n")
    reader.join()
    assert read == ["through\n"]
    assert stat.S_ISFIFO(os.stat(pipe).st_mode)
    with pytest.raises(ValueError, match="keeps no lines to resume from"), whole_file("/dev/null", resume=True):
        pass


def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" / "out")  # which does not exist yet
    for number in range(2):
        with whole_file(link, overwrite=bool(number)) as file:
            file.write(f"{number}\n")
        assert link.is_symlink()
        assert (tmp_path / "real" / "out").read_text() == f"{number}\n"
    write_text(link, "text")
    assert link.is_symlink()
    folder = tmp_path / "folder"
    folder.symlink_to(tmp_path / "real" / "results")
    for number in range(2):
        with whole_folder(folder, overwrite=bool(number)) as temporary:
            (temporary / f"{number}").touch()
        assert folder.is_symlink()
        assert [entry.name for entry in folder.iterdir()] == [f"{number}"]


def test_anything_else_is_refused_before_the_work(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    here = socket.socket(socket.AF_UNIX)
    here.bind(str(tmp_path / "socket"))
    for name, message in [
        ("folder", r"folder is a folder: give the name of a file for --output"),
        ("loop", r"loop is neither a file nor a device nor a pipe"),
        ("socket", r"socket is neither a file nor a device nor a pipe"),
    ]:
        with pytest.raises(ValueError, match=message), whole_file(tmp_path / name, overwrite=True):
            pytest.fail("the work began")
    here.close()
    (tmp_path / "file").touch()
    for context in (whole_file(tmp_path / "file" / "out"), whole_folder(tmp_path / "file" / "out")):
        with pytest.raises(OSError, match=r"out can't be written \(.+\): choose another folder"), context:
            pytest.fail("the work began")


@pytest.mark.parametrize("open_outputs", [whole_file, whole_folder])
def test_a_folder_without_permission_is_named(tmp_path, monkeypatch, open_outputs):
    def refuse(path, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)  # root may write anywhere
    with pytest.raises(OSError, match=r"out can't be written \(Permission denied\)"), open_outputs(tmp_path / "out"):
        pytest.fail("the work began")


# --- killed in the middle ---


def test_a_kill_at_any_moment_of_a_replacement_leaves_one_whole_folder(tmp_path):
    """Each call that renames or deletes is the last one of its process in turn."""
    path = tmp_path / "out"
    with whole_folder(path, overwrite=True) as folder:
        (folder / "version").write_text("old")
    for last in range(10):
        process = os.fork()
        if process == 0:
            die_at_call(last, [(os, "replace"), (os, "unlink"), (os, "rmdir")])
            with whole_folder(path, overwrite=True) as folder:
                (folder / "version").write_text("new")
            os._exit(0)
        _, status = os.waitpid(process, 0)
        with whole_folder(tmp_path / "other", overwrite=True):  # the start of another command does not touch this one
            pass
        if status == 0:
            break
        with whole_folder(path, overwrite=True) as folder:  # the next start
            assert (path / "version").read_text() in ("old", "new")
            (folder / "version").write_text("old")
        assert {entry.name for entry in tmp_path.iterdir()} == {"out", "other"}
    assert 2 <= last < 9
    assert (path / "version").read_text() == "new"


def die_at_call(number: int, functions: list) -> None:
    """Ends this process without any cleaning up when the functions were called `number` times."""
    calls = iter(range(number))

    def dying(real):
        def call(*args, **options):
            if next(calls, None) is None:
                os._exit(9)
            return real(*args, **options)

        return call

    for module, name in functions:
        setattr(module, name, dying(getattr(module, name)))


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path):
    for name in (".out-abcd1234.new", ".out-abcd1234.old", ".out-other-abcd1234.new", ".out-kept", ".output-x.new"):
        (tmp_path / name).mkdir()
    (tmp_path / "out").mkdir()
    with whole_folder(tmp_path / "out"):
        pass
    assert {entry.name for entry in tmp_path.iterdir()} == {
        "out",
        ".out-other-abcd1234.new",
        ".out-kept",
        ".output-x.new",
    }
    for name in (".run.json-abcd1234.new", ".gitignore", ".x.new"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir() if entry.is_file()} == {".gitignore", ".x.new"}
