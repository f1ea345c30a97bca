"""Systems alternate, ratios are medians of rounds, and a GPU has its own clock."""

import os
from types import SimpleNamespace

import torch

from vanilla_transformer.scripts.benchmarks import measuring


def test_systems_take_turns():
    called = []
    systems = {name: lambda name=name: called.append(name) or len(called) for name in ("ours", "theirs")}
    assert measuring.take_turns(systems, rounds=3) == {"ours": [1, 3, 5], "theirs": [2, 4, 6]}
    assert called == ["ours", "theirs"] * 3


def test_a_ratio_is_the_median_of_the_rounds_and_its_spread_their_ends():
    seconds = {"ours": [1.0, 2.0, 1.0], "theirs": [2.0, 3.0, 5.0]}
    ratios = measuring.speed_ratios(seconds, "theirs")
    assert ratios["ours"] == {"to MarianMT": 2.0, "spread": [1.5, 5.0]}
    assert ratios["theirs"] == {"to MarianMT": 1.0, "spread": [1.0, 1.0]}


def test_a_gpu_is_measured_by_its_own_clock(monkeypatch):
    """With a mock: the test machine has no GPU."""
    order = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            order.append("record")

        def elapsed_time(self, end):
            return 1500.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: order.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 123)
    gpu = SimpleNamespace(type="cuda")
    assert measuring.seconds_of(lambda: order.append("work"), gpu) == 1.5
    assert order == ["synchronize", "record", "work", "record", "synchronize"]
    assert measuring.peak_memory(gpu) == 123
    assert measuring.gpu_notes(gpu) == []


def test_a_process_is_prepared_once_and_then_works(tmp_path):
    with measuring.worker_process(os.chdir, tmp_path) as worker:
        assert [worker.submit(os.getcwd).result() for _ in range(2)] == [str(tmp_path)] * 2
    assert os.getcwd() != str(tmp_path)


def test_cpu_seconds_are_those_of_the_process(monkeypatch):
    clock = iter([1.0, 3.5])
    monkeypatch.setattr(measuring.time, "process_time", lambda: next(clock))
    assert measuring.cpu_seconds_of(lambda: None) == 2.5


def test_memory_kept_for_the_backward_pass_is_counted_once_and_without_parameters():
    weight, states = torch.nn.Parameter(torch.ones(8, 4)), torch.randn(16, 8)
    first = measuring.bytes_kept(lambda: (states @ weight).exp(), [weight])
    assert first == 4 * (16 * 8 + 16 * 4)  # the states for the weight's gradient, and the result of exp
    assert measuring.bytes_kept(lambda: (states @ weight).exp(), [weight, states]) == 4 * 16 * 4
