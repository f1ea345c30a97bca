"""Sinusoids: a shift is a rotation, and likeness depends on the distance. Integers outgrow the embeddings."""

import pytest

from vanilla_transformer.scripts.explain import position_encodings as positions
from vanilla_transformer.scripts.explain.copying import right_tokens


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


def test_the_topic_scores_every_encoding_within_and_beyond_the_trained_length(quick):
    found = positions.explain(quick)
    quality = found.tables[-1].rows
    assert list(quality) == list(positions.ENCODINGS)
    assert list(quality["none"]) == [f"{length} tokens" for length in positions.TESTED]
    assert [picture.suffix for picture in found.pictures] == ["", "_lengths"]


@pytest.mark.slow
def test_sinusoids_copy_trained_lengths_and_not_longer_ones():
    model = positions.learn_positions("sinusoidal", updates=600)
    assert right_tokens(model, 8) > 0.9
    assert right_tokens(model, 16) < 0.7
