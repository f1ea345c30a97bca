"""Dropout makes passes differ in training and is off in testing."""

import pytest

from vanilla_transformer.scripts.explain import dropout


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_only_passes_in_training_mode_differ(rate, make_model, tmp_path):
    make_model(dropout=rate).save_pretrained(tmp_path)
    spreads = dropout.spread_of_passes(tmp_path)
    assert spreads["passes in test mode"] == 0
    assert (spreads["passes in training mode"] > 0.01) == (rate > 0)


@pytest.mark.slow
def test_the_topic_compares_training_and_validation_loss(quick):
    (table,) = dropout.explain(quick).tables
    assert list(table.rows) == list(dropout.RATES)
    for row in table.rows.values():
        assert row["best validation loss"] <= row["last validation loss"]
