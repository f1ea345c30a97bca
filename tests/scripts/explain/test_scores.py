"""The additive score keeps d_k numbers for each pair of tokens, the dot product one."""

import torch

from vanilla_transformer.scripts.explain import scores
from vanilla_transformer.scripts.explain.layer_costs import D_MODEL, SelfAttention, cost


def test_the_additive_score_needs_many_times_the_memory():
    layers = {name: SelfAttention("eager", score_function=score) for name, score in scores.SCORES.items()}
    row = cost(layers, torch.randn(1, 256, D_MODEL), rounds=1)
    assert row["additive, MiB"] > 5 * row["dot product, MiB"]


def test_the_topic_compares_all_scores(quick):
    measured, trained = scores.explain(quick).tables
    assert len(measured.rows) == 2
    assert trained.rows["one matrix"]["parameters"] < trained.rows["dot product"]["parameters"]
