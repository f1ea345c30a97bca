"""Mixing corpora: one counts several times, or only a share of it is used; several directions are balanced by size."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset, Features, Value

from vanilla_transformer.training.data.token_batches import column_lengths


TEXT = Features({"source": Value("string"), "target": Value("string")})
DIRECTION = "direction"  # column with the direction of a pair, if a corpus has several


def copies(number: int, weight: float, seed: int) -> np.ndarray:
    """Returns indices that repeat a corpus `weight` times: whole copies, and a random share of one more.

    Args:
        number: Size of the corpus.
        weight: How often each pair occurs on average, for example 2.5.
        seed: Seed of the random share.
    """
    whole, share = divmod(weight, 1)
    drawn = np.random.default_rng(seed).choice(number, round(share * number), replace=False)
    return np.concatenate([np.tile(np.arange(number), int(whole)), np.sort(drawn)])


def temperature_weights(sizes: Sequence[int], temperature: float) -> list[float]:
    """Returns how often each corpus is used, so that its share is proportional to size^(1/temperature).

    (Arivazhagan et al. 2019, "Massively Multilingual Neural Machine Translation in the Wild".) The largest is used
    once and the others at least once, so no pair is left out.

    Args:
        sizes: Number of pairs of each corpus.
        temperature: 1 keeps the sizes; the higher, the more equal the shares.
    """
    return [(max(sizes) / size) ** (1 - 1 / temperature) for size in sizes]


def balanced_directions(dataset: Dataset, temperature: float, seed: int) -> tuple[Dataset, dict[str, dict[str, Any]]]:
    """Repeats the pairs of small directions, the same ones in each epoch and on every machine.

    Args:
        dataset: Tokenised pairs with their direction.
        temperature: That of `temperature_weights`.
        seed: Seed of the pairs in an incomplete copy.

    Returns:
        The pairs of an epoch, and for each direction a row of the data report.
    """
    names = dataset.features[DIRECTION].names
    of_pair = dataset.with_format("numpy")[DIRECTION][:]
    sizes = np.bincount(of_pair, minlength=len(names)).tolist()
    weights = temperature_weights(sizes, temperature)
    chosen = [
        np.flatnonzero(of_pair == number)[copies(size, weight, seed + number)]
        for number, (size, weight) in enumerate(zip(sizes, weights, strict=True))
    ]
    lengths = [column_lengths(dataset, column) for column in ("input_ids", "labels")]
    total = sum(map(len, chosen))
    rows: dict[str, dict[str, Any]] = {}
    for name, size, weight, pairs in zip(names, sizes, weights, chosen, strict=True):
        tokens = {
            f"{side} tokens": int(of[pairs].sum()) for side, of in zip(("source", "target"), lengths, strict=True)
        }
        rows[name] = {"pairs": size, "times": round(weight, 2), "share": f"{len(pairs) / total:.1%}", **tokens}
    if total > len(dataset):
        dataset = dataset.select(np.concatenate(chosen))
    return dataset, rows
