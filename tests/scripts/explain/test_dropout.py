"""Dropout makes passes differ in training and is off in testing."""

import pytest

from vanilla_transformer.scripts.explain import copying, dropout


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_only_passes_in_training_mode_differ(rate, make_model):
    spreads = dropout.spread_of_passes(make_model(dropout=rate))
    assert spreads[dropout.TESTING] == 0
    assert (spreads[dropout.TRAINING] > 0.01) == (rate > 0)


def test_the_topic_compares_known_and_unseen_sequences(quick):
    (table,) = dropout.explain(quick).tables
    assert list(table.rows) == [f"dropout {rate}" for rate in dropout.RATES]
    for row in table.rows.values():
        assert row["least unseen"] <= row["unseen"]


@pytest.mark.slow
def test_few_sequences_are_learned_by_heart_and_dropout_makes_that_harder():
    gaps = {}
    for rate in (0.0, 0.3):
        known, unseen = dropout.learn_few(copying.make_model(dropout=rate), rounds=1, updates=300)
        gaps[rate] = unseen[-1] - known[-1]
    assert gaps[0.0] > gaps[0.3] > 0
