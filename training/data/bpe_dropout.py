"""BPE-dropout (Provilkov et al. 2020): words are split into subwords at random, by skipping some merges.

`tokenizers` has this too, but draws from a generator of the system that no seed controls, so no run could be repeated.
Here every draw depends on the seed alone.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from random import Random

from tokenizers import models
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.models.tokenization_vanilla_transformer import language_tag, language_tags


# How many random splits of a word are drawn at most. They are kept, and one is chosen each time the word occurs. Words
# have few splits, so more would not differ from these.
SPLITS = 32
KEPT_WORDS = 200_000  # about 100 MB


class BpeDropout:
    """Turns texts into ids like a tokenizer, but skips each merge with some probability.

    Args:
        tokenizer: A BPE tokenizer, for instance from `train_tokenizer`.
        probability: Probability of skipping a merge; 0.1 is usual. With 0 the ids are the tokenizer's own.
        seed: Seed of the splits.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, probability: float, *, seed: int):
        if not 0 <= probability < 1:
            raise ValueError(f"bpe_dropout={probability} must be at least 0 and less than 1; 0.1 is usual.")
        _require_plain_bpe(tokenizer)
        self.probability, self.seed = probability, seed
        self._backend = tokenizer.backend_tokenizer
        model = json.loads(self._backend.to_str())["model"]
        self._ids: dict[str, int] = model["vocab"]
        self._ranks = {tuple(_pair(merge)): rank for rank, merge in enumerate(model["merges"])}
        self._before, self._after = _special_ids_around(tokenizer)
        self._tags = {language_tag(language): token_id for language, token_id in language_tags(tokenizer).items()}
        self._splits: dict[str, list[tuple[int, ...] | None]] = {}

    def __call__(self, texts: Sequence[str], random: Random) -> list[list[int]]:
        """Returns the ids of each text, with the special tokens that the tokenizer adds.

        Args:
            texts: The texts.
            random: Chooses among the splits of each word.
        """
        return [[*self._before, *self._encode(text, random), *self._after] for text in texts]

    def _encode(self, text: str, random: Random) -> list[int]:
        ids: list[int] = []
        tag, _, rest = text.partition(" ")
        if tag in self._tags:  # a tag is whole, and only the text after it is split
            ids, text = [self._tags[tag]], rest
        normalizer = self._backend.normalizer
        normalized = normalizer.normalize_str(text) if normalizer is not None else text
        for word, _ in self._backend.pre_tokenizer.pre_tokenize_str(normalized):
            ids += self._split(word, random.randrange(SPLITS))
        return ids

    def _split(self, word: str, number: int) -> tuple[int, ...]:
        """Returns the split of a word with this number. It depends on nothing else, so it does not matter when it is
        drawn, nor that it is forgotten."""
        splits = self._splits.get(word)
        if splits is None:
            if len(self._splits) >= KEPT_WORDS:
                self._splits.clear()
            splits = self._splits[word] = [None] * SPLITS
        split = splits[number]
        if split is None:
            split = splits[number] = self._draw(word, Random(f"{self.seed} {number} {word}"))
        return split

    def _draw(self, word: str, random: Random) -> tuple[int, ...]:
        """Merges the characters of a word. Before each merge, every possible one is skipped with the probability; the
        first in the order of learning among the rest is made."""
        parts = list(word)
        while True:
            possible = [
                (rank, place)
                for place, pair in enumerate(pairwise(parts))
                if (rank := self._ranks.get(pair)) is not None and random.random() >= self.probability
            ]
            if not possible:
                return tuple(self._ids[part] for part in parts)
            _, place = min(possible)
            parts[place : place + 2] = ["".join(parts[place : place + 2])]


def _require_plain_bpe(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses a tokenizer that does more than merge the characters of each word."""
    model = tokenizer.backend_tokenizer.model if hasattr(tokenizer, "backend_tokenizer") else None
    if not isinstance(model, models.BPE):
        kind = type(tokenizer if model is None else model).__name__
        raise ValueError(f"bpe_dropout needs a BPE tokenizer, not {kind}: set it to 0, or algorithm to bpe.")
    vocabulary = tokenizer.get_vocab()
    marks = (model.continuing_subword_prefix, model.end_of_word_suffix, model.byte_fallback)
    tags = set(map(language_tag, language_tags(tokenizer)))
    added = set(tokenizer.get_added_vocab()) - set(tokenizer.all_special_tokens) - tags
    has_all_characters = all(part in vocabulary for part in ("Ġ", "Ã", "!"))  # three of the byte alphabet
    if any(marks) or added or not has_all_characters or tokenizer.backend_tokenizer.pre_tokenizer is None:
        raise ValueError(
            "bpe_dropout needs a byte-level BPE tokenizer without added words, such as those of vanilla train: set it "
            "to 0, or learn a vocabulary with algorithm bpe."
        )


def _pair(merge: str | list[str]) -> list[str]:
    """Returns the two parts of a merge, which older files write with a space between them."""
    return merge.split(" ") if isinstance(merge, str) else merge


def _special_ids_around(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Returns the ids that the tokenizer puts before and after a text."""
    bare, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    start = next(place for place in range(len(whole)) if whole[place : place + len(bare)] == bare)
    return whole[:start], whole[start + len(bare) :]
