"""Post-norm gradients grow towards the top, pre-norm ones do not. Only BatchNorm depends on the batch."""

import pytest

from vanilla_transformer.scripts.explain import norms


def test_post_norm_gradients_grow_towards_the_top_and_pre_norm_ones_do_not():
    ratios = {}
    for name in (norms.POST, norms.PRE):
        layers = norms.gradient_norms(name, depth=12)
        ratios[name] = layers[-1] / layers[0]
    assert ratios[norms.POST] > 3
    assert ratios[norms.PRE] < 1.5


def test_without_residuals_hardly_any_gradient_reaches_the_lowest_layer():
    layers = norms.gradient_norms(norms.NONE, depth=12)
    assert layers[0] < layers[-1] / 1000


def test_only_batch_norm_depends_on_the_batch(quick):
    by_size, by_padding = norms.compare_normalisations(quick)
    for table in (by_size, by_padding):
        assert max(row["LayerNorm"] for row in table.rows.values()) == 0
    small, large = (row["BatchNorm"] for row in by_size.rows.values())
    assert small > 2 * large > 0
    changes = [row["BatchNorm"] for row in by_padding.rows.values()]
    assert changes[0] == 0
    assert changes == sorted(changes)


@pytest.mark.slow
def test_the_topic_trains_deep_models(quick):
    gradients, trained, *_ = norms.explain(quick).tables
    assert len(gradients.rows) == 6
    assert list(trained.rows) == [norms.POST, norms.PRE]
