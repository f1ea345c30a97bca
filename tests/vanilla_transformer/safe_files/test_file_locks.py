"""One holder at a time, in another thread or another process, until it ends in whatever way."""

import os
import signal
import threading

import pytest

from vanilla_transformer.safe_files import file_locks
from vanilla_transformer.safe_files.file_locks import lock, locked_file


def refused(path) -> bool:
    try:
        with locked_file(path):
            return False
    except BlockingIOError:
        return True


def test_a_thread_excludes_the_others_of_its_process(tmp_path):
    path, entered = tmp_path / "lock", threading.Event()
    with locked_file(path):
        assert refused(path)
        assert refused(tmp_path / "." / "lock")  # the same file by another name

        def wait() -> None:
            with locked_file(path, wait=True):
                entered.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not entered.wait(0.05)
    thread.join()
    assert entered.is_set()
    assert not refused(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_process_excludes_others_until_it_is_killed(tmp_path):
    path = tmp_path / "lock"
    read, write = os.pipe()
    owner = os.fork()
    if owner == 0:
        with locked_file(path):
            worker = os.fork()  # which outlives the owner
            if worker:
                os.write(write, worker.to_bytes(4, "big"))
            signal.pause()
        os._exit(0)
    worker = int.from_bytes(os.read(read, 4), "big")
    try:
        assert refused(path)
        os.kill(owner, signal.SIGKILL)
        os.waitpid(owner, 0)
        os.kill(worker, 0)
        assert not refused(path)
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_file_that_its_owner_renamed_is_not_the_one_that_is_locked(tmp_path, monkeypatch):
    """Its last owner finishes between opening and locking."""
    path, calls = tmp_path / "out.partial", []
    real = file_locks._lock

    def rename_first(descriptor: int, wait: bool) -> None:
        if not calls:
            os.replace(path, tmp_path / "out")
        calls.append(descriptor)
        real(descriptor, wait)

    path.write_text("finished")
    monkeypatch.setattr(file_locks, "_lock", rename_first)
    with locked_file(path) as descriptor:
        os.write(descriptor, b"other")
    assert len(calls) == 2
    assert ((tmp_path / "out").read_text(), path.read_text()) == ("finished", "other")


def test_a_lock_leaves_no_file_behind(tmp_path):
    with lock(tmp_path / "lock"):
        assert refused(tmp_path / "lock")
    with pytest.raises(ZeroDivisionError), lock(tmp_path / "lock"):
        _ = 1 / 0
    assert not list(tmp_path.iterdir())
