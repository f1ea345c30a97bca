"""Mixing corpora: a corpus counts several times, or only a share of it is used."""

import numpy as np


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
