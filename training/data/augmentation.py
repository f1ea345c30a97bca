"""Pairs in the forms that people type: capitals, headings, small letters, no final stop, typos, two sentences, and
things that are copied and not translated.

A recipe gives each form its rate, `augmentation: {upper_case: 0.03, typos: 0.05}`. Each time a pair is used, it takes
at most one form, drawn from the seed, the epoch and the batch's text. So the draws are the same after a resume, and in
whichever worker or process the batch is collated.

A form that needs many more tokens is given to whole batches: one long pair would pad all others to its length.
"""

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from vanilla_transformer.models.spelling import suggestion


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


def copied(pair: Pair, random: Random) -> Pair:
    """Something that is not translated, alone or after the sentence."""
    item = random.choice(COPIED)(random)
    if random.random() < 0.5:
        return Pair(item, item)
    return Pair(*(joined(side, item) for side in pair))


def joined(first: str, second: str) -> str:
    """Two texts as one, with a space between them unless the first ends in a wide stop."""
    return first + second if first.endswith(tuple(WIDE_STOPS)) else f"{first} {second}"


FORMS: dict[str, Callable[[Pair, Random], Pair]] = {
    "upper_case": upper_case,
    "title_case": title_case,
    "lower_case": lower_case,
    "no_punctuation": no_punctuation,
    "typos": typos,
    "copied": copied,
}
TWO_SENTENCES = "two_sentences"  # needs another pair of the same direction
LENGTHENING = ("upper_case", "title_case", "copied", TWO_SENTENCES)  # drawn for batches, the others for pairs


# --- what is copied ---

EMOJI = "😀😂🙂😉😍🤔😎😢👍👏🙏❤️🎉🔥🌍☀️🐶🐱🍎🍕⚽🚗✈️🏠".replace("\ufe0f", "")
SYLLABLES = ("ba", "ka", "lo", "mi", "ra", "to", "ne", "su", "vi", "do", "an", "el", "or", "in", "sch", "ber", "ton")
ENDINGS = ("com", "org", "net", "de", "fr", "es", "cn", "io")


def _name(random: Random) -> str:
    return "".join(random.choices(SYLLABLES, k=random.randint(2, 3)))


def _number(random: Random) -> str:
    number = random.randrange(10 ** random.randint(1, 6))
    forms = (f"{number}", f"{number:,}", f"{number / 100:.2f}", f"{number % 24}:{number % 60:02}", f"{number % 101}%")
    return random.choice(forms)


def _person(random: Random) -> str:
    return " ".join(_name(random).capitalize() for _ in range(random.randint(1, 2)))


def _address(random: Random) -> str:
    return f"{random.randrange(1, 300)} {_name(random).capitalize()} Street, {_name(random).capitalize()}"


def _email(random: Random) -> str:
    return f"{_name(random)}.{_name(random)}@{_name(random)}.{random.choice(ENDINGS)}"


def _url(random: Random) -> str:
    path = "/".join(_name(random) for _ in range(random.randrange(3)))
    return f"https://www.{_name(random)}.{random.choice(ENDINGS)}/{path}"


def _emoji(random: Random) -> str:
    few = random.choices(EMOJI, k=random.randint(1, 3))
    return "".join(few) * random.choice((1, 1, 1, 3, 10))


COPIED = (_number, _number, _person, _address, _email, _url, _emoji)


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
    if sum(rates.values()) > 1:
        raise ValueError(f"augmentation: the rates add up to {sum(rates.values()):g}, but a pair takes one form.")


class AugmentingCollator:
    """Gives some pairs another form, and tokenises those again, before another collator takes them.

    Token batches are planned with the lengths of the pairs as they are. A batch in capitals has two to three times as
    many tokens: leave room in `max_tokens`.

    Args:
        collator: The next collator.
        rates: The share of pairs in each form.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target tokenizer.
        tags: Tags of target languages, which stay in front of the source.
        seed: Seed of the draws.
    """

    def __init__(
        self,
        collator: Callable[[list[dict[str, Any]]], Any],
        rates: dict[str, float],
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase,
        *,
        tags: Sequence[str] = (),
        seed: int = 0,
    ):
        self.collator, self.tokenizer, self.target_tokenizer = collator, tokenizer, target_tokenizer
        self.of_batches = {name: rate for name, rate in rates.items() if name in LENGTHENING}
        self.of_pairs = {name: rate for name, rate in rates.items() if name not in LENGTHENING}
        self.tags, self.seed, self.epoch = set(tags), seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, so that a pair takes other forms in each epoch."""
        self.epoch = epoch
        if hasattr(self.collator, "set_epoch"):
            self.collator.set_epoch(epoch)

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        tagged = [self._split_tag(example) for example in examples]
        random = Random(f"{self.seed} {self.epoch} {tagged}")
        form = _drawn(self.of_batches, 1.0, random)
        if form == TWO_SENTENCES:
            return self.collator([self._encoded(tag, pair) for tag, pair in _joined_in_twos(tagged)])
        others = 1 - sum(self.of_batches.values())  # the share of batches whose pairs draw for themselves
        changed = []
        for example, (tag, pair) in zip(examples, tagged, strict=True):
            name = form or _drawn(self.of_pairs, others, random)
            formed = FORMS[name](pair, random) if name else pair
            changed.append(example if formed == pair else self._encoded(tag, formed))
        return self.collator(changed)

    def _split_tag(self, example: dict[str, Any]) -> tuple[str, Pair]:
        tag, _, rest = example["source"].partition(" ")
        if tag in self.tags:
            return f"{tag} ", Pair(rest, example["target"])
        return "", Pair(example["source"], example["target"])

    def _encoded(self, tag: str, pair: Pair) -> dict[str, Any]:
        source = f"{tag}{pair.source}"
        return {
            "source": source,
            "target": pair.target,
            "input_ids": self.tokenizer(source)["input_ids"],
            "labels": self.target_tokenizer(text_target=pair.target)["input_ids"],
        }


def _drawn(rates: dict[str, float], total: float, random: Random) -> str:
    """One of the names, or "" for the rest of the total."""
    place = random.random() * total
    for name, rate in rates.items():
        place -= rate
        if place < 0:
            return name
    return ""


def _joined_in_twos(tagged: list[tuple[str, Pair]]) -> list[tuple[str, Pair]]:
    """Every two pairs with the same tag as one; a last one without a partner stays alone. As many tokens as before."""
    waiting: dict[str, Pair] = {}
    done = []
    for tag, pair in tagged:
        first = waiting.pop(tag, None)
        if first is None:
            waiting[tag] = pair
        else:
            done.append((tag, Pair(*map(joined, first, pair))))
    return done + list(waiting.items())
