"""One pass over the target gives the same logits as one token after the other."""

from vanilla_transformer.scripts.explain import parallel


def test_all_ways_give_the_same_logits(quick):
    (table,) = parallel.explain(quick).tables
    for row in table.rows.values():
        assert row["largest difference of logits"] < 1e-4
        assert len(row) == 4
