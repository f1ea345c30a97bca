"""Every shard is done, by whomever, and the last step once."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.bulk_translation import shards as module
from vanilla_transformer.bulk_translation.shards import Shards, equal_ranges, ranges_of_size
from vanilla_transformer.safe_files.atomic_writes import new_file, write_text
from vanilla_transformer.safe_files.file_locks import lock


@given(rows=st.integers(0, 10_000), number=st.integers(1, 300))
def test_ranges_are_all_rows_in_order(rows, number):
    for ranges in (equal_ranges(rows, number), ranges_of_size(rows, number)):
        assert [stop for _, stop in ranges[:-1]] == [start for start, _ in ranges[1:]]
        assert (ranges[0][0], ranges[-1][1]) == (0, rows)
        assert all(start < stop for start, stop in ranges) or ranges == [(0, 0)]
    sizes = [stop - start for start, stop in equal_ranges(rows, number)]
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == max(min(rows, number), 1)
    assert all(stop - start == number for start, stop in ranges_of_size(rows, number)[:-1])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)


def begun(folder, number=10, only=None, **settings) -> Shards:
    return Shards(folder, {"beams": 4, **settings}, equal_ranges(30, number), only=only)


def join(shards: Shards) -> None:
    write_text(shards.whole, "".join(file.read_text() for file in shards.files()))


def test_many_workers_do_each_shard_once_and_one_joins_them(tmp_path):
    done, joined = [], []

    def worker(_) -> None:
        shards = begun(tmp_path)

        def do(number, count_rows):
            done.append(number)
            write_text(shards.file(number), f"{number} ")

        def last_step():
            joined.append(sorted(done))
            join(shards)

        shards.work(do)
        shards.finish(last_step)
        assert shards.whole.read_text() == "0 1 2 3 4 5 6 7 8 9 "

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(worker, range(6)))
    assert sorted(done) == list(range(10))
    assert joined == [list(range(10))]
    shards = begun(tmp_path)
    shards.tidy()
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", "translations.txt"}
    assert shards.missing() == []
    shards.work(pytest.fail)
    shards.finish(pytest.fail)


def test_progress_counts_the_rows_of_all_processes(tmp_path):
    shards = begun(tmp_path)
    write_text(shards.file(2), "done")
    seen = []

    def do(number, count_rows):
        count_rows(2)
        seen.append(begun(tmp_path).progress())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shards.work(do)
    assert seen == [(1, 5)]
    assert shards.progress() == (1, 3)
    assert shards.missing() == [0, 1, *range(3, 10)]


def test_a_killed_process_leaves_its_shard_to_others(tmp_path):
    shards = begun(tmp_path, number=3)
    child = os.fork()
    if child == 0:
        shards.work(lambda number, _: os._exit(9))
    os.waitpid(child, 0)
    assert [path.name for path in tmp_path.glob("*.lock")] == ["shard-00000-of-00003.lock"]
    shards.work(lambda number, _: write_text(shards.file(number), str(number)))
    assert [file.read_text() for file in shards.files()] == ["0", "1", "2"]
    assert not list(tmp_path.glob("*.lock"))


def test_the_jobs_of_an_array_do_their_own_shards(tmp_path):
    done = []

    def job(only):
        shards = begun(tmp_path, number=4, only=only)
        shards.work(lambda number, _: write_text(shards.file(number), str(done.append((only, number)))))
        return shards

    first = job({0, 3})
    assert (first.rows, first.progress(), begun(tmp_path, number=4).missing()) == (15, (2, 15), [1, 2])
    job({1})
    job(None)  # the last command does what is left
    assert done == [({0, 3}, 0), ({0, 3}, 3), ({1}, 1), (None, 2)]


def test_without_locks_two_may_do_a_shard_and_the_slower_one_changes_nothing(tmp_path, monkeypatch):
    slow, others = begun(tmp_path, number=2), begun(tmp_path, number=2)
    locks = count()
    monkeypatch.setattr(module, "lock", lambda path, **_: lock(path.with_name(f".{next(locks)}"), wait=True))

    def do_slowly(number, count_rows):
        with new_file(slow.file(number)) as temporary:
            temporary.write_text("half")
            for file in tmp_path.glob(".[0-9]*"):
                file.unlink()  # as another process does that has the same shard
            count_rows(1)
            others.work(lambda number, _: write_text(others.file(number), str(number)))
            others.finish(lambda: join(others))
            others.tidy()

    slow.work(do_slowly)
    assert others.whole.read_text() == "01"
    assert {path.name for path in tmp_path.iterdir()} == {"manifest.json", "translations.txt"}


def test_work_is_over_for_all_when_its_folder_is_removed(tmp_path):
    shards = begun(tmp_path / "shards", number=2)
    waiting = begun(tmp_path / "shards", number=2)
    shards.work(lambda number, _: write_text(shards.file(number), str(number)))
    thread = threading.Thread(target=waiting.finish, args=(waiting.remove,))
    shards.finish(shards.remove)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    waiting.work_on(0, pytest.fail)
    assert not (tmp_path / "shards").exists()


def test_another_work_is_refused(tmp_path):
    begun(tmp_path / "out")
    with pytest.raises(
        ValueError, match=r"out was begun with beams=4, not 5: continue it with the same options, or de"
    ):
        begun(tmp_path / "out", beams=5)
    with pytest.raises(ValueError, match=r"manifest.json was changed: restore it"):
        begun(tmp_path / "out", number=5)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "news.de").touch()
    with pytest.raises(ValueError, match=r"other holds news.de, but no manifest.json: choose another folder"):
        begun(tmp_path / "other")


def test_the_manifest_has_the_ranges(tmp_path):
    begun(tmp_path, number=2)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["shards"] == {"shard-00000-of-00002.txt": "0:15", "shard-00001-of-00002.txt": "15:30"}
