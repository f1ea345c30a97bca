"""Attention with a Gaussian score is Nadaraya-Watson regression, and a learned width fits better."""

import torch
from torch.testing import assert_close

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.attention_scores import GaussianScore
from vanilla_transformer.scripts.explain import pooling


def test_a_learned_width_beats_the_fixed_one_and_that_beats_the_mean(quick):
    (table,) = pooling.explain(quick).tables
    for column in ("error, unseen point", "error, true curve"):
        mean, fixed, learned = (row[column] for row in table.rows.values())
        assert learned < fixed < mean


def test_weights_are_the_kernel_of_nadaraya_and_watson():
    score = GaussianScore(VanillaTransformerConfig(), num_heads=1, d_k=1)
    queries, keys = torch.tensor([0.5, 2.0]), torch.tensor([0.0, 1.0, 3.0])
    kernel = torch.exp(-0.5 * (queries[:, None] - keys) ** 2)
    assert_close(pooling.weights(score, queries, keys), kernel / kernel.sum(-1, keepdim=True))
    left_out = pooling.weights(score, keys, keys, leave_out=True)
    assert_close(left_out.diagonal(), torch.zeros(3))
    assert_close(left_out.sum(-1), torch.ones(3))
