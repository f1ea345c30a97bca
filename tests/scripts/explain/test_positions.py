"""Sinusoids: a shift is a rotation, and likeness depends on the distance. Integers outgrow the embeddings."""

import pytest

from vanilla_transformer.scripts.explain import positions


def test_a_shift_of_sinusoids_is_a_rotation_and_products_depend_on_the_distance():
    for row in positions.shifts().rows.values():
        assert row["rotation - true"] < 1e-3
        assert row["its spread over p"] < 1e-3


def test_scaled_embeddings_are_as_long_as_sinusoids_and_integers_outgrow_both():
    rows = positions.sizes().rows
    for row in rows.values():
        assert row["embedding"] == pytest.approx(1, rel=0.05)
        assert row["sinusoidal"] == pytest.approx(8, rel=1e-3)  # sqrt(128 / 2)
        assert 1 < row["embedding x sqrt(d_model)"] / row["sinusoidal"] < 2
    assert rows["position 1000"]["integer"] > 500 * rows["position 1000"]["embedding x sqrt(d_model)"]


@pytest.mark.slow
def test_the_topic_scores_every_encoding_within_and_beyond_the_trained_length(quick):
    found = positions.explain(quick)
    assert set(found.tables[-1].rows) == set(positions.ENCODINGS)
    assert [picture.suffix for picture in found.pictures] == ["", "_lengths"]
