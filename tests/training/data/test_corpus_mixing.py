"""Copies of a corpus: each pair as often as the weight says, give or take one."""

import numpy as np
import pytest

from vanilla_transformer.training.data.corpus_mixing import copies


@pytest.mark.parametrize(
    ("weight", "each", "total"), [(1, {1}, 10), (3, {3}, 30), (2.5, {2, 3}, 25), (0.3, {0, 1}, 3)]
)
def test_each_pair_occurs_as_often_as_its_weight_says(weight, each, total):
    counts = np.bincount(copies(10, weight, seed=1), minlength=10)
    assert set(counts) == each
    assert counts.sum() == total


def test_the_seed_draws_the_share():
    assert copies(100, 0.5, seed=1).tolist() == copies(100, 0.5, seed=1).tolist()
    assert copies(100, 0.5, seed=1).tolist() != copies(100, 0.5, seed=2).tolist()
