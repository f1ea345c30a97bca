"""The gradient of the unscaled softmax falls with d_k; with the paper's scale it stays."""

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.scripts.explain import scaling


@pytest.fixture(scope="module")
def rows():
    torch.manual_seed(0)
    return {
        scale: {d_k: scaling.figures(scale, d_k) for d_k in (64, 1024)}
        for scale in ("no scale", "1 / sqrt(d_k)", "1 / d_k")
    }


def test_without_the_scale_variance_is_the_width_and_the_softmax_saturates(rows):
    narrow, wide = rows["no scale"].values()
    assert [narrow["variance of scores"], wide["variance of scores"]] == pytest.approx([64, 1024], rel=0.3)
    assert wide["gradient at scores"] < narrow["gradient at scores"] / 3
    assert wide["entropy of weights"] < narrow["entropy of weights"] / 3


def test_with_the_scale_variance_entropy_and_gradient_stay(rows):
    narrow, wide = rows["1 / sqrt(d_k)"].values()
    for name, value in narrow.items():
        assert wide[name] == pytest.approx(value, rel=0.2), name


def test_a_scale_of_the_whole_width_makes_all_weights_equal(rows):
    narrow, wide = rows["1 / d_k"].values()
    assert wide["entropy of weights"] == pytest.approx(torch.tensor(scaling.KEYS).log().item(), rel=1e-3)
    assert wide["gradient at query"] < narrow["gradient at query"] / 3


def test_the_derivative_is_that_of_autograd():
    scores = torch.randn(3, 5)
    expected = torch.stack([torch.autograd.functional.jacobian(lambda row: row.softmax(-1), row) for row in scores])
    assert_close(scaling.softmax_derivative(scores.softmax(-1)), expected)


def test_the_topic_has_a_row_for_each_scale_and_width(quick):
    (table,) = scaling.explain(quick).tables
    assert len(table.rows) == 9
