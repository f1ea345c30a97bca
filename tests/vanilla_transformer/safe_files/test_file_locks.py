"""One holder at a time, in another thread or another process, until it ends in whatever way."""

import errno
import fcntl
import os
import signal
import threading

import pytest
from filelock import Timeout

from vanilla_transformer.safe_files.file_locks import lock


def refused(path) -> bool:
    try:
        with lock(path):
            return False
    except Timeout:
        return True


def test_a_thread_excludes_the_others_of_its_process(tmp_path):
    path, entered = tmp_path / "lock", threading.Event()
    with lock(path):
        assert refused(path)
        assert refused(tmp_path / "." / "lock")  # the same file by another name

        def wait() -> None:
            with lock(path, wait=True):
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
        with lock(path):
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


def test_the_file_of_a_lock_that_ends_while_another_waits_is_not_locked_again(tmp_path, monkeypatch):
    """Its last owner ends between opening and locking, and deletes it."""
    path, real = tmp_path / "lock", fcntl.flock

    def delete_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        path.unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", delete_first)
    with lock(path, wait=True):
        assert path.exists()
        assert refused(path)


def test_a_lock_leaves_no_file_behind(tmp_path):
    with lock(tmp_path / "lock"):
        assert refused(tmp_path / "lock")
    with pytest.raises(ZeroDivisionError), lock(tmp_path / "lock"):
        _ = 1 / 0
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_file_system_without_locks_has_files_that_exclude(tmp_path, monkeypatch):
    def flock(*_) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    with lock(tmp_path / "lock"):
        assert refused(tmp_path / "lock")
    assert not refused(tmp_path / "lock")
    assert not list(tmp_path.iterdir())
