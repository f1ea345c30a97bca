"""Pairs in the forms that people type: capitals, headings, small letters, no final stop, typos, one clause, two
sentences, and things that are copied and not translated.

A recipe gives each form its rate: with `augmentation: {upper_case: 0.05, typos: 0.06}`, 5% of the pairs occur a second
time in capitals, and 6% with a typo. They join the text before the vocabulary is learned and batches are planned. So
subwords in capitals are learned too, a long form is in a batch of long pairs, and a resumed run has the same text.

Greetings and single words are what people try first, and a corpus has few: short pairs take each form more often.
"""

import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple

from datasets import Dataset, IterableDataset

from vanilla_transformer.models.spelling import suggestion
from vanilla_transformer.training.data.copied_items import COPIED
from vanilla_transformer.training.data.corpus_mixing import DIRECTION
from vanilla_transformer.training.data.phrase_book import PhraseBook


class Pair(NamedTuple):
    """A source and its translation."""

    source: str
    target: str


STOPS = ".!?…。！？"
WIDE_STOPS = "。！？"  # after them, Chinese and Japanese have no space
NEIGHBOURS = {
    letter: row[place - 1 : place] + row[place + 1 : place + 2]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for place, letter in enumerate(row)
}


# --- the forms of one pair ---


def upper_case(pair: Pair, random: Random) -> Pair:
    """Both sides in capitals."""
    return Pair(pair.source.upper(), pair.target.upper())


def title_case(pair: Pair, random: Random) -> Pair:
    """Every word of both sides with a capital, as in a heading."""
    return Pair(*(" ".join(word[:1].upper() + word[1:] for word in side.split(" ")) for side in pair))


def lower_case(pair: Pair, random: Random) -> Pair:
    """The source in small letters; the translation stays as it should be."""
    return Pair(pair.source.lower(), pair.target)


def no_punctuation(pair: Pair, random: Random) -> Pair:
    """Both sides without their final stop."""
    return Pair(*(side.rstrip(STOPS + "\u00a0\u202f ") or side for side in pair))


def typos(pair: Pair, random: Random) -> Pair:
    """One mistake in about every fifth longer word of the source, at least one in all."""
    words = pair.source.split(" ")
    long = [place for place, word in enumerate(words) if len(re.findall("[a-z]", word)) > 3]
    if not long:
        return pair
    for place in random.sample(long, max(1, len(long) // 5)):
        words[place] = _mistyped(words[place], random)
    return Pair(" ".join(words), pair.target)


def _mistyped(word: str, random: Random) -> str:
    """The word with two letters swapped, one left out, one twice, or one that is beside it on the keyboard."""
    place = random.randrange(1, len(word) - 1)
    before, letter, after = word[:place], word[place], word[place + 1 :]
    kind = random.randrange(4)
    if kind == 0:
        return before + after[:1] + letter + after[1:]
    if kind == 1:
        return before + after
    if kind == 2 or letter not in NEIGHBOURS:
        return before + 2 * letter + after
    return before + random.choice(NEIGHBOURS[letter]) + after


def one_clause(pair: Pair, random: Random) -> Pair:
    """One of two clauses, where both sides have one comma: "Yes" of "Yes, I know."."""
    of_source, of_target = (re.split(r",\s+|，", side) for side in pair)
    if not len(of_source) == len(of_target) == 2:
        return pair
    source, target = random.choice(list(zip(of_source, of_target, strict=True)))
    return Pair(source[:1].upper() + source[1:], target[:1].upper() + target[1:])


def copied(pair: Pair, random: Random) -> Pair:
    """Something that is not translated: in place of a name or number of both sides, alone, or after the sentence."""
    shared = set.intersection(*(set(re.findall(r"\b(?:[A-Z][a-z]+|\d+)\b", side)) for side in pair))
    if shared and random.random() < 0.6:
        was = random.choice(sorted(shared))
        new = str(random.randrange(10 ** random.randint(1, 4))) if was.isdigit() else COPIED["name"](random)
        return Pair(*(re.sub(rf"\b{was}\b", new, side) for side in pair))
    item = random.choice(list(COPIED.values()))(random)
    if random.random() < 0.5:
        return Pair(item, item)
    return Pair(*(joined(side, item) for side in pair))


def names(pair: Pair, random: Random) -> Pair:
    """Another first name in place of Tom or Mary, the names of most sentences of Tatoeba."""
    for kind, spellings in (("man", ("Tom", "汤姆")), ("woman", ("Mary", "玛丽"))):
        was = [next((name for name in spellings if re.search(_as_name(name), side)), "") for side in pair]
        if not all(was):
            continue
        others = first_names(kind)
        if any(re.search(rf"\b(?:d[eo]|que|si|y|o|e|u) {name}", side) for name, side in zip(was, pair, strict=True)):
            others = [name for name in others if name[0][0] not in "AEIOUYÉH"]  # French and Spanish would elide
        new = random.choice(others)
        pair = Pair(
            *(re.sub(_as_name(name), new[not name.isascii()], side) for name, side in zip(was, pair, strict=True))
        )
    return pair


@cache
def first_names(kind: str) -> list[tuple[str, str]]:
    """Returns the first names of the phrase book for a `man` or `woman`, in Latin and Chinese script."""
    return [(row["name"], row["zh"]) for row in PhraseBook.read().named("en", kind)]


def _as_name(name: str) -> str:
    return rf"\b{name}\b" if name.isascii() else name


def joined(first: str, second: str) -> str:
    """Two texts as one, with a space between them unless the first ends in a wide stop."""
    return first + second if first.endswith(tuple(WIDE_STOPS)) else f"{first} {second}"


FORMS: dict[str, Callable[[Pair, Random], Pair]] = {
    "upper_case": upper_case,
    "title_case": title_case,
    "lower_case": lower_case,
    "no_punctuation": no_punctuation,
    "typos": typos,
    "one_clause": one_clause,
    "copied": copied,
    "names": names,
}
TWO_SENTENCES = "two_sentences"  # needs another pair of the same direction
PAIRS_AT_A_TIME = 10_000  # among which a sentence finds its second one
SHORT = 16  # characters on each side of a pair that takes a form SHORT_SHARE times as often: "Good night."
SHORT_SHARE = 4


# --- in training ---


def require_rates(rates: dict[str, float]) -> None:
    """Refuses forms that do not exist, and rates that are not shares."""
    known = (*FORMS, TWO_SENTENCES)
    for name, rate in rates.items():
        if name not in known:
            raise ValueError(
                f"augmentation has no form {name!r}{suggestion(name, known)}: choose from {', '.join(known)}."
            )
        if not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise ValueError(f"augmentation: {name}={rate!r} must be a share from 0 to 1.")


def augmented(text: Dataset | IterableDataset, rates: dict[str, float], *, seed: int = 0) -> Dataset | IterableDataset:
    """Returns pairs of text and, after them, those that occur again in another form. A form that would change nothing
    is left out.

    Args:
        text: The pairs, with the column `direction` if there are several. A stream stays one.
        rates: The share of pairs in each form.
        seed: Seed of the draws.
    """
    options = {} if isinstance(text, IterableDataset) else {"desc": "Augmenting"}
    if isinstance(text, Dataset):
        text = text.shuffle(seed=seed)  # files are often sorted, and two sentences should have nothing in common
    return text.map(
        _with_forms,
        batched=True,
        batch_size=PAIRS_AT_A_TIME,
        with_indices=True,
        fn_kwargs={"rates": rates, "seed": seed},
        features=text.features,
        **options,
    )


def _with_forms(
    columns: dict[str, list[Any]], indices: list[int], rates: dict[str, float], seed: int
) -> dict[str, list[Any]]:
    random = Random(f"{seed} {indices[0]}")
    pairs = list(map(Pair, columns["source"], columns["target"]))
    directions = columns.get(DIRECTION, [0] * len(pairs))
    of_direction = defaultdict(list)
    for pair, direction in zip(pairs, directions, strict=True):
        of_direction[direction].append(pair)
    rows, formed = [], list[Pair]()
    for name, rate in rates.items():
        for row, (pair, direction) in enumerate(zip(pairs, directions, strict=True)):
            if random.random() >= rate * (SHORT_SHARE if max(map(len, pair)) <= SHORT else 1):
                continue
            if name == TWO_SENTENCES:
                new = Pair(*map(joined, pair, random.choice(of_direction[direction])))
            else:
                new = FORMS[name](pair, random)
            if new.source != pair.source:  # Chinese has no capitals: without them its translation should not have any
                rows.append(row)
                formed.append(new)
    new_text = {"source": [pair.source for pair in formed], "target": [pair.target for pair in formed]}
    return {
        name: column + (new_text[name] if name in new_text else [column[row] for row in rows])
        for name, column in columns.items()
    }
