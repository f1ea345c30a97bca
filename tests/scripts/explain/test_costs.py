"""Table 1 of the paper: memory and paths, which are the same on every machine."""

import math

import pytest
import torch

from vanilla_transformer.scripts.explain import costs
from vanilla_transformer.scripts.explain.layer_costs import D_MODEL, cost


@pytest.mark.parametrize("length", [8, 64])
def test_paths_are_those_of_the_table(length):
    steps = {name: costs.steps_to_connect(step, length) for name, step in costs.make_steps().items()}
    assert steps == {
        "full attention": 1,
        "window": math.ceil((length - 1) / (costs.WINDOW // 2)),
        "recurrent": length - 1,  # n
        "convolution": math.ceil((length - 1) / (costs.KERNEL - 1)),  # n / k
        "dilated convolution": math.ceil(math.log(length, costs.KERNEL)),  # log_k n
    }


def test_memory_of_all_scores_grows_with_the_square_and_others_with_the_length():
    layers = costs.make_layers()
    short, long = (cost(layers, torch.randn(1, length, D_MODEL), rounds=1) for length in (512, 1024))
    growth = {name: long[f"{name}, MiB"] / short[f"{name}, MiB"] for name in layers}
    assert growth.pop("full, eager") > 3
    assert max(growth.values()) < 2.1  # SDPA's kernel does not keep the scores


def test_the_topic_has_a_row_for_each_length(quick):
    measured, paths = costs.explain(quick).tables
    assert list(measured.rows) == ["32", "64"]
    assert list(paths.rows) == ["8", "32"]
