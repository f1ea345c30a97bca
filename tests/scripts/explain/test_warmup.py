"""The rate rises to its peak at the end of the warm-up and then falls."""

import pytest

from vanilla_transformer.scripts.explain import warmup


def test_the_schedule_has_its_peak_at_the_end_of_the_warm_up(quick):
    found = warmup.explain(quick)
    assert len(found.tables[0].rows) == 2 * len(warmup.RATES)
    (schedule, _), *_ = found.pictures[0].rows
    for (_, steps), curve in zip(warmup.SCHEDULES.values(), schedule.curves.values(), strict=True):
        assert schedule.points[max(range(len(curve)), key=curve.__getitem__)] == steps


@pytest.mark.slow
def test_a_high_rate_needs_warm_up():
    cold, warm = (warmup.losses(max(warmup.RATES), updates, 200) for updates in (0, warmup.WARMUP))
    assert sum(warm[-10:]) < sum(cold[-10:])
