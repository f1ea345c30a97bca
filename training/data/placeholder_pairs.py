"""Training pairs with placeholders in place of whatever both sides have unchanged, as a translator replaces it."""

import re
from random import Random

from datasets import Dataset, IterableDataset

from vanilla_transformer.training.data.augmentation import Pair
from vanilla_transformer.translation.placeholders import PLACEHOLDERS, protect, protect_like


def with_placeholders_in_pairs(
    text: Dataset | IterableDataset, number: int, *, seed: int = 0
) -> Dataset | IterableDataset:
    """Replaces addresses, prices and numbers that both sides of a pair have by placeholders.

    Half of the pairs use other placeholders than the first ones, so that all of them are learned.

    Args:
        text: The pairs.
        number: How many placeholders the vocabulary has.
        seed: Seed of the placeholders that are used.
    """
    options = {} if isinstance(text, IterableDataset) else {"desc": "Placeholders"}
    return text.map(
        _replaced,
        batched=True,
        with_indices=True,
        fn_kwargs={"number": number, "seed": seed},
        features=text.features,
        **options,
    )


def _replaced(columns: dict[str, list], indices: list[int], number: int, seed: int) -> dict[str, list]:
    random = Random(f"{seed} {indices[0]}")
    pairs = [
        with_placeholders(Pair(*sides), number, random)
        for sides in zip(columns["source"], columns["target"], strict=True)
    ]
    return {**columns, "source": [pair.source for pair in pairs], "target": [pair.target for pair in pairs]}


def with_placeholders(pair: Pair, number: int, random: Random) -> Pair:
    """Returns a pair with placeholders if both sides have the same things to copy; otherwise the pair itself."""
    source, values = protect(pair.source, number)
    target = protect_like(pair.target, values) if values else None
    if target is None:
        return pair
    names = PLACEHOLDERS[: len(values)]
    if random.random() < 0.5:
        names = tuple(sorted(random.sample(PLACEHOLDERS[:number], len(values))))
    renamed = dict(zip(PLACEHOLDERS, names, strict=False))
    return Pair(*(re.sub("|".join(PLACEHOLDERS), lambda found: renamed[found[0]], side) for side in (source, target)))
