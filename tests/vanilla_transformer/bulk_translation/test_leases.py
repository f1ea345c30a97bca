"""One owner at a time, until it releases the lease, dies, or is silent for too long."""

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat

import pytest

from vanilla_transformer.bulk_translation import leases
from vanilla_transformer.bulk_translation.leases import Leases, progress_of


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [1000.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: now[0])
    return now


def elsewhere(beats: int) -> str:
    """The record of a process of another computer."""
    return json.dumps({"machine": "another", "process": 1, "beats": beats, "progress": 7})


def test_an_owner_excludes_others_until_it_releases(tmp_path):
    path = tmp_path / "lease"
    with Leases().take(path) as lease:
        assert Leases().take(path) is None
        lease.progress = 5
        lease._beat()
        assert progress_of(path) == 5
    assert not path.exists()
    assert progress_of(path) == 0
    with Leases().take(path):
        assert path.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("noticed", [True, False])
def test_a_killed_process_of_this_computer_is_succeeded_at_once(tmp_path, noticed):
    path = tmp_path / "lease"
    read, write = os.pipe()
    owner = os.fork()
    if owner == 0:
        with Leases().take(path):
            os.write(write, b"x")
            signal.pause()
        os._exit(0)
    os.read(read, 1)
    assert Leases().take(path) is None
    os.kill(owner, signal.SIGKILL)
    if noticed:
        os.waitpid(owner, 0)
    else:  # it has ended, but stays in the list of processes until its parent asks
        os.waitid(os.P_PID, owner, os.WEXITED | os.WNOWAIT)
    with Leases().take(path):
        assert json.loads(path.read_bytes())["process"] == os.getpid()
    if not noticed:
        os.waitpid(owner, 0)


def test_another_computer_is_succeeded_when_its_beats_stop(tmp_path, clock):
    path, waiting = tmp_path / "lease", Leases(expires_after=60)
    for beats in range(3):
        path.write_text(elsewhere(beats))
        assert waiting.take(path) is None
        clock[0] += 59  # a new beat comes in time
    path.write_text(elsewhere(3))
    assert waiting.take(path) is None
    clock[0] += 61
    assert Leases(expires_after=60).take(path) is None  # one that has only just begun to look
    with waiting.take(path) as lease:
        assert lease is not None


def test_a_lease_without_content_expires_too(tmp_path, clock):
    path, waiting = tmp_path / "lease", Leases(expires_after=60)
    path.touch()  # its owner was killed before it wrote its name
    assert waiting.take(path) is None
    clock[0] += 61
    with waiting.take(path) as lease:
        assert lease is not None


def test_of_many_who_find_an_abandoned_lease_one_takes_it(tmp_path, clock):
    for round_number in range(20):
        path = tmp_path / f"lease{round_number}"
        path.write_text(elsewhere(1))
        waiting = [Leases(expires_after=60) for _ in range(8)]
        assert [each.take(path) for each in waiting] == [None] * 8
        clock[0] += 61
        with ThreadPoolExecutor(8) as pool:
            taken = [lease for lease in pool.map(Leases.take, waiting, repeat(path)) if lease is not None]
        assert len(taken) == 1
        with taken[0]:
            pass
    assert list(tmp_path.iterdir()) == []


def test_an_owner_that_was_taken_for_dead_leaves_its_successor_alone(tmp_path):
    path = tmp_path / "lease"
    with ExitStack() as second_block:
        with Leases().take(path) as first:
            path.unlink()
            second_block.enter_context(Leases().take(path))
            before = path.read_bytes()
            first.progress = 99
            first._beat()
            assert path.read_bytes() == before
        assert path.read_bytes() == before
    assert not path.exists()
