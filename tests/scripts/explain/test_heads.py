"""One wide head and several narrow ones have equal parameters. Several look at two places at once."""

import pytest

from vanilla_transformer.scripts.explain import heads
from vanilla_transformer.scripts.explain.explanation import ExplainArguments


def test_the_number_of_heads_does_not_change_the_parameters(quick):
    (table,) = heads.explain(quick).tables
    assert len(table.rows) == 3
    assert len({row["parameters"] for row in table.rows.values()}) == 1


@pytest.mark.slow
def test_one_head_learns_later_to_look_at_two_places():
    (table,) = heads.explain(ExplainArguments()).tables
    one, *several = table.rows.values()
    for row in several:
        assert row["3/4"] < one["3/4"] / 2
