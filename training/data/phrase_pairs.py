"""Training pairs from a phrase book: phrases in the forms that people type, and templates with their slots filled.

Every pair is drawn with a seed, so the same options give the same text.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from random import Random

from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.training.data.augmentation import Pair, no_punctuation
from vanilla_transformer.training.data.copied_items import COPIED
from vanilla_transformer.training.data.phrase_book import PhraseBook


SLOT = re.compile(r"\{(\w+)\}")
SENTENCE_END = re.compile(r"[\u00a0\u202f ]?[.!。！]$")
ENDS = {"fr": ("\u202f!", "."), "zh": ("！", "。")}  # other languages: "!" and "."
OPENING = "¡¿"


def phrase_pairs(
    book: PhraseBook,
    languages: Languages,
    *,
    per_phrase: int,
    per_template: int,
    seed: int = 0,
    excluded: Collection[str] = (),
) -> Iterator[Pair]:
    """Yields the pairs of a direction: each phrase in several forms, then each template with several fillings.

    Args:
        book: The phrase book.
        languages: The direction.
        per_phrase: Pairs made of each phrase.
        per_template: Pairs made of each template.
        seed: Seed of forms and fillings.
        excluded: Evaluation sentences. A filled template that equals one of them on either side is dropped.
    """
    random = Random(f"{seed} {languages}")
    source, target = map(str, languages)
    for row in book.phrases:
        for _ in range(per_phrase):
            yield _typed(Pair(row[source], row[target]), languages, random)
    held_out = set(map(comparable, excluded))
    for row in book.templates:
        for _ in range(per_template):
            pair = _filled(row, book, languages, random)
            if held_out.isdisjoint(map(comparable, pair)):
                yield pair


def comparable(text: str) -> str:
    """Returns the letters and digits of a text without case, for comparing sentences."""
    return "".join(character for character in text.casefold() if unicodedata.category(character)[0] in "LN")


# --- phrases ---


def _typed(pair: Pair, languages: Languages, random: Random) -> Pair:
    """A phrase as people type it: as it is, without its stop, in small letters, or with another stop."""
    form = random.random()
    if form < 0.5:
        return pair
    if form < 0.65:
        return _without_stop(pair)
    if form < 0.8:
        source, target = _without_stop(pair)
        return Pair(source.lower(), target)
    if all(side[:1].islower() for side in pair):
        return Pair(*(side[:1].upper() + side[1:] for side in pair))
    return _with_other_stop(pair, languages)


def _without_stop(pair: Pair) -> Pair:
    return Pair(*(side.lstrip(OPENING) for side in no_punctuation(pair, Random())))


def _with_other_stop(pair: Pair, languages: Languages) -> Pair:
    """An exclamation as a statement, and a statement as an exclamation."""
    if not all(map(SENTENCE_END.search, pair)):
        return pair
    excited = pair.source.endswith(("!", "！"))
    sides = []
    for side, language in zip(pair, map(str, languages), strict=True):
        exclamation, statement = ENDS.get(language, ("!", "."))
        text = SENTENCE_END.sub("", side).lstrip("¡")
        if excited:
            sides.append(text[:1].upper() + text[1:] + statement)
        else:
            sides.append(f"{'¡' * (language == 'es')}{text}{exclamation}")
    return Pair(*sides)


# --- templates ---


def _filled(row: dict[str, str], book: PhraseBook, languages: Languages, random: Random) -> Pair:
    """A template with a value in each slot."""
    source, target = map(str, languages)
    values: dict[str, Pair] = {}
    first_names = random.sample(book.named(source, "man", "woman"), 2)
    for slot in dict.fromkeys(SLOT.findall(row[source])):
        if slot in ("name", "name2"):
            values[slot] = _name(first_names[slot == "name2"], languages, random)
        elif slot == "surname":
            values[slot] = _name(random.choice(book.named(source, "surname")), languages, random)
        elif slot == "city":
            city = random.choice([place for place in book.places if place["kind"] == "city"])
            values[slot] = Pair(city[source], city[target])
        elif slot == "in_country":
            country = random.choice([place for place in book.places if place["kind"] == "country"])
            values[slot] = Pair(country[f"{source}_in"], country[f"{target}_in"])
        else:
            value = COPIED[slot](random)
            values[slot] = Pair(value, value)
    return Pair(
        SLOT.sub(lambda slot: values[slot[1]].source, row[source]),
        SLOT.sub(lambda slot: values[slot[1]].target, row[target]),
    )


def _name(name: dict[str, str], languages: Languages, random: Random) -> Pair:
    """A name of the book; without Chinese, which would spell it, every third is an invented one."""
    if "zh" not in map(str, languages) and random.random() < 1 / 3:
        invented = COPIED["name"](random)
        return Pair(invented, invented)
    return Pair(*(name["zh"] if str(language) == "zh" else name["name"] for language in languages))
