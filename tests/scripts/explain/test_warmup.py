"""The rate rises to its peak at the end of the warm-up and then falls; without warm-up it starts there."""

import pytest

from vanilla_transformer.scripts.explain import trainings, warmup
from vanilla_transformer.training.plots import read_metrics


def rates(folder):
    return [entry["learning_rate"] for entry in read_metrics(folder / "metrics.jsonl") if "learning_rate" in entry]


def test_only_the_first_run_has_a_warm_up(quick):
    found = warmup.explain(quick)
    assert list(found.tables[0].rows) == ["warm-up", "no warm-up"]
    first = trainings.train_one("paper", trainings.PAPER, quick)
    second = trainings.train_one("no_warmup", trainings.PAPER, quick, warmup.CONSTANT)
    assert rates(first)[0] < rates(second)[0] == pytest.approx(0.004)
    (schedule, _), *_ = found.pictures[0].rows
    for (_, steps), curve in zip(warmup.SCHEDULES.values(), schedule.curves.values(), strict=True):
        assert schedule.points[max(range(len(curve)), key=curve.__getitem__)] == steps
