"""Copies of a corpus: each pair as often as the weight says, give or take one."""

import numpy as np
import pytest
from datasets import ClassLabel, Dataset

from vanilla_transformer.training.data.corpus_mixing import balanced_directions, copies


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


@pytest.mark.parametrize("temperature", [1, 2, 5, 100])
def test_shares_of_directions_are_those_of_the_temperature(temperature):
    sizes = {"en-de": 1600, "en-fr": 400, "en-zh": 100}
    label = ClassLabel(names=list(sizes))
    directions = [number for number, size in enumerate(sizes.values()) for _ in range(size)]
    pairs = Dataset.from_dict(
        {"input_ids": [[1, 2]] * 2100, "labels": [[1]] * 2100, "direction": directions, "pair": list(range(2100))}
    ).cast_column("direction", label)
    epoch, rows = balanced_directions(pairs, temperature, seed=1)
    powers = [size ** (1 / temperature) for size in sizes.values()]
    counts = np.bincount(epoch["direction"][:])
    assert counts / counts.sum() == pytest.approx([power / sum(powers) for power in powers], abs=0.001)
    assert set(epoch["pair"][:]) == set(range(2100)), "no pair is left out"
    assert counts[0] == 1600, "the largest direction is used once"
    assert {name: row["pairs"] for name, row in rows.items()} == sizes
    assert [row["source tokens"] for row in rows.values()] == (2 * counts).tolist()
    assert balanced_directions(pairs, temperature, seed=1)[0]["pair"][:] == epoch["pair"][:]
