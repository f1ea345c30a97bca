"""Training pairs with placeholders in place of whatever both sides have unchanged, as a translator replaces it."""

import re
from collections.abc import Sequence
from random import Random

from datasets import Dataset, IterableDataset

from vanilla_transformer.training.data.augmentation import Pair
from vanilla_transformer.translation.placeholders import PLACEHOLDERS, protect


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
    (source, values), (target, translated) = (protect(side, number) for side in pair)
    if not values or sorted(values) != sorted(translated):
        return pair
    names = PLACEHOLDERS[:number]
    if random.random() < 0.5:
        names = tuple(sorted(random.sample(names, len(values))))
    unused = dict(enumerate(values))
    of_target = []
    for value in translated:
        of_target.append(next(place for place, other in unused.items() if other == value))
        del unused[of_target[-1]]
    return Pair(_renamed(source, names), _renamed(target, [names[place] for place in of_target]))


def _renamed(text: str, names: Sequence[str]) -> str:
    """Replaces the placeholders of a text, which stand in their order, by others."""
    remaining = iter(names)
    return re.sub("|".join(PLACEHOLDERS), lambda _: next(remaining), text)
