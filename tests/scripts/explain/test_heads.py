"""One wide head and several narrow ones have equal parameters."""

from vanilla_transformer.scripts.explain import heads


def test_the_number_of_heads_does_not_change_the_parameters(quick):
    (table,) = heads.explain(quick).tables
    assert len(table.rows) == 3
    assert len({row["parameters"] for row in table.rows.values()}) == 1
