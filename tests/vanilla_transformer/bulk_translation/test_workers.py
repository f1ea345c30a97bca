"""Real processes share the work of a corpus. Killed at any time, the result is that of one process."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.scripts.conftest import model_folder  # noqa: F401 (a fixture)
from vanilla_transformer.bulk_translation.workers import WorkerArguments, share_cores
from vanilla_transformer.scripts import translate


WORDS = ["The", "cat", "sleeps.", "A", "dog", "runs", "in", "the", "garden."]
# In torch a shard takes long enough to be killed in the middle.
QUICK = ["--backend", "torch", "--device", "cpu", "--max_extra_tokens", "3"]


@pytest.fixture
def words(model_folder, tmp_path):  # noqa: F811
    """Returns a function: name of the output -> words of a command line that translates 600 lines."""
    draw = random.Random(0)
    lines = [" ".join(draw.choice(WORDS) for _ in range(draw.randint(0, 9))) for _ in range(600)]
    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in lines))
    where = ["--model", str(model_folder), "--input", str(tmp_path / "in.en"), "--window", "1", *QUICK]
    return lambda name, *more: [*where, "--output", str(tmp_path / name), *more]


@pytest.fixture
def expected(words, tmp_path) -> bytes:
    """The translation by one process, line by line."""
    translate.main(words("plain"))
    return (tmp_path / "plain").read_bytes()


def start(arguments: list[str], *launcher: str) -> subprocess.Popen:
    command = [sys.executable, *launcher, "-m", "vanilla_transformer.scripts.translate", *arguments]
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd="/")


def finished_shards(folder: Path) -> int:
    return len(list(folder.glob("shard-*.txt")))


def wait_for_shards(folder: Path, number: int, process: subprocess.Popen) -> None:
    for _ in range(60_000):  # ten minutes: a run that hangs must not hang the tests
        if finished_shards(folder) >= number or process.poll() is not None:
            return
        time.sleep(0.01)
    process.kill()


def workers_of(process: subprocess.Popen, title: str) -> list[int]:
    """The processes that a command has started and that run."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return [child.pid for child in children if runs(child.pid) and title in " ".join(child.cmdline())]
    except psutil.NoSuchProcess:
        return []


def runs(number: int) -> bool:
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_end(processes: list[int]) -> None:
    """Waits until processes have ended, whose parent was killed."""
    for _ in range(6000):
        if not any(map(runs, processes)):
            return
        time.sleep(0.01)
    pytest.fail("a worker has outlived its parent")


TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
# Options of the command, its launcher, and what the command lines of the workers have in common.
ENGINES = {
    "processes": (["--processes", "2"], [], "spawn_main"),
    "torchrun": ([], TORCHRUN, "scripts.translate"),
    "ray": (["--engine", "ray", "--processes", "2"], [], "MapWorker"),
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_workers_and_parents_killed_ten_times_leave_the_same_bytes(words, expected, tmp_path, engine):
    options, launcher, title = ENGINES[engine]
    if engine == "ray":
        pytest.importorskip("ray")
    draw, folder, command = random.Random(1), tmp_path / "out", words("out", "--shards", "60", *options)
    kills = {"parent": 0, "worker": 0}
    process = start(command, *launcher)
    while sum(kills.values()) < 10:
        if process.poll() is not None:
            assert process.returncode != 0, "it was done before ten kills: give it more lines"
            process = start(command, *launcher)
        wait_for_shards(folder, finished_shards(folder) + draw.randint(1, 3), process)
        time.sleep(draw.random() / 10)
        workers = workers_of(process, title)
        victim = draw.choice(["parent", "worker"]) if workers else "parent"
        if process.poll() is None:
            os.kill(workers[0] if victim == "worker" else process.pid, signal.SIGKILL)
            kills[victim] += 1
        if victim == "parent":
            process.wait()
            for worker in workers if engine == "torchrun" else []:  # torchrun's go on without it
                if runs(worker):
                    os.kill(worker, signal.SIGKILL)
            wait_for_end(workers)
    if process.wait(600) != 0:
        process = start(command, *launcher)
        assert process.wait(600) == 0
    print(kills)
    assert min(kills.values()) > 0
    assert (folder / "translations.txt").read_bytes() == expected
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "translations.txt"}


@pytest.mark.slow
def test_torchrun_gives_every_process_shards(words, expected, tmp_path):
    assert start(words("out", "--shards", "8"), *TORCHRUN).wait(600) == 0
    assert (tmp_path / "out" / "translations.txt").read_bytes() == expected


@pytest.mark.slow
def test_ray_gives_the_same_bytes(words, expected, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        translate.main(words("out", "--shards", "8", "--engine", "ray", "--processes", "2"))
    finally:
        ray.shutdown()
    assert (tmp_path / "out" / "translations.txt").read_bytes() == expected


def test_ray_that_is_missing_is_named(words, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SystemExit, match=r"--engine ray needs Ray, which is not installed: pip install 'ray\[data\]'"):
        translate.main(words("out", "--shards", "2", "--engine", "ray"))


def test_a_launcher_and_processes_exclude_each_other(monkeypatch):
    with pytest.raises(ValueError, match="processes=0 must be at least 1"):
        WorkerArguments(processes=0)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert WorkerArguments().processes is None
    with pytest.raises(ValueError, match="The launcher starts the processes already: leave out --processes"):
        WorkerArguments(processes=2)


def test_processes_share_the_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    share_cores(2)
    assert os.environ["OMP_NUM_THREADS"] == "3"  # the user has decided
    monkeypatch.delenv("OMP_NUM_THREADS")
    share_cores(3)
    assert os.environ["OMP_NUM_THREADS"] == "2"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # so that the value above ends with this test
