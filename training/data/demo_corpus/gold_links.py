"""The word links that the demo grammar knows, to measure alignments against.

Both sides of a sentence are written from the same phrases and words. Here each of these leaves a mark at the words it
becomes, a character that no text has, and words with the same mark are linked: the parts of a noun phrase one by one,
and the words of a verb with its auxiliaries and negation as a group. A link is sure if its group has one word on each
side, and else possible, as in Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count, islice
from typing import Any, NamedTuple

from vanilla_transformer.training.data.demo_corpus.grammar import (
    CONTRACTIONS,
    Both,
    Clause,
    NounPhrase,
    Order,
    PrepositionalPhrase,
    Pronoun,
    Sentence,
    Split,
    demo_sentences,
)
from vanilla_transformer.training.data.demo_corpus.lexicon import Adjective, Adverb, Case, Preposition
from vanilla_transformer.translation.words import word_spans


MARKS = "[\ue000-\uf8ff]"  # Unicode's characters for private use
MARK, WORD = re.compile(MARKS), re.compile(r"[\w'-]+")
CONJUNCTION, LINK = "\ue000", "\ue001"  # between two phrases, and two clauses
FIRST_MARK = 0xE002  # of all other words
Link = tuple[int, int]


class LinkedPair(NamedTuple):
    """A sentence pair with its links: source word and target word, as `word_spans` counts them.

    Args:
        en: The English sentence.
        de: The German sentence.
        sure: Links that an alignment must have.
        possible: Links that an alignment may have; the sure ones are among them.
    """

    en: str
    de: str
    sure: set[Link]
    possible: set[Link]


def linked_pairs(split: Split, size: int, seed: int = 0) -> list[LinkedPair]:
    """Returns the pairs of `demo_corpus` with their links."""
    return [linked(sentence) for sentence in demo_sentences(split, size, seed)]


def linked(sentence: Sentence) -> LinkedPair:
    """Returns a sentence in both languages, with the links of its words."""
    with_marks = marked(sentence)
    groups: dict[str, tuple[list[int], list[int]]] = {}
    for side, text in enumerate((with_marks.english(), _contracted(with_marks.german()))):
        for index, marks_of_word in enumerate(_marks_of_words(_filled(text, [LINK]))):
            for mark in marks_of_word:
                groups.setdefault(mark, ([], []))[side].append(index)
    sure, possible = set[Link](), set[Link]()
    for sources, targets in groups.values():
        links = {(source, target) for source in sources for target in targets}
        possible |= links
        sure |= links if len(links) == 1 else set()
    return LinkedPair(sentence.english(), sentence.german(), sure, possible)


def alignment_error_rate(alignments: list[set[Link]], pairs: list[LinkedPair]) -> float:
    """Returns 1 - (|A and S| + |A and P|) / (|A| + |S|) of alignments A, sure links S and possible links P.

    Words without any link count neither for nor against an alignment: the grammar does not know of them, such as full
    stops.
    """
    hits = total = 0
    for links, pair in zip(alignments, pairs, strict=True):
        sources, targets = ({link[side] for link in pair.possible} for side in (0, 1))
        known = {link for link in links if link[0] in sources and link[1] in targets}
        hits += len(known & pair.sure) + len(known & pair.possible)
        total += len(known) + len(pair.sure)
    return 1 - hits / total


# --- marks ---


def marked(sentence: Sentence) -> Sentence:
    """Returns a sentence whose words leave their marks; those between its clauses have none yet."""
    marks = map(chr, count(FIRST_MARK))
    return replace(sentence, main=_marked(sentence.main, marks), second=_marked(sentence.second, marks))


def _filled(text: str, marks: Sequence[str]) -> str:
    """Marks the words that have no mark, the last word with the first mark; those that are left share the last."""
    words = text.split()
    bare = [index for index, word in enumerate(words) if WORD.search(word) and not MARK.search(word)]
    for number, index in enumerate(reversed(bare)):
        mark = marks[min(number, len(marks) - 1)]
        words[index] = WORD.sub(rf"\g<0>{mark}", words[index], count=1)
    return " ".join(words)


@dataclass(frozen=True)
class _NounPhrase(NounPhrase):
    """Its own words have the same order in both languages: determiner, number, adjectives, noun."""

    marks: tuple[str, ...] = ()

    def english(self, case: Case) -> str:
        return _filled(super().english(case), self.marks)

    def german(self, case: Case) -> str:
        return _filled(super().german(case), self.marks)


class _Both(Both):
    """Its own words are "and" and "und"."""

    def english(self, case: Case) -> str:
        return _filled(super().english(case), CONJUNCTION)

    def german(self, case: Case) -> str:
        return _filled(super().german(case), CONJUNCTION)


@dataclass(frozen=True)
class _Clause(Clause):
    """Its own words are the verb, its auxiliaries and the negation."""

    marks: tuple[str, ...] = ()

    def english(self, order: Order = "statement") -> str:
        return _filled(super().english(order), self.marks)

    def german(self, order: Order = "statement") -> str:
        return _filled(super().german(order), self.marks)


def _marked(part: Any, marks: Iterator[str]) -> Any:
    """Returns a part of a sentence that marks the words it writes."""
    match part:
        case Clause():
            parts = {field.name: _marked(getattr(part, field.name), marks) for field in fields(Clause)}
            return _Clause(**parts, marks=(next(marks),))
        case NounPhrase():
            own = {**vars(part), "relative": _marked(part.relative, marks)}
            return _NounPhrase(**own, marks=tuple(islice(marks, len(part.adjectives) + 3)))
        case Both():
            return _Both(_marked(part.first, marks), _marked(part.second, marks))
        case PrepositionalPhrase(preposition, phrase):
            return PrepositionalPhrase(_marked(preposition, marks), _marked(phrase, marks))
        case Pronoun() | Adjective() | Adverb() | Preposition():
            lengths = {len(text.split()) for text in (part.en, part.de)}
            is_phrase = isinstance(part, Adverb) and len(lengths) == 1  # word by word: on Monday, am Montag
            own_marks = list(islice(marks, max(lengths) if is_phrase else 1)) or [""]
            return part._replace(en=_filled(part.en, own_marks), de=_filled(part.de, own_marks))
    return part


def _contracted(marked: str) -> str:
    """Contracts preposition and article: the grammar does not know them with their marks."""
    for pair, contraction in CONTRACTIONS.items():
        first, second = pair.split()
        marked = re.sub(rf"\b{first}({MARKS}) {second}({MARKS})", rf"{contraction}\1\2", marked)
    return marked


def _marks_of_words(marked: str) -> list[list[str]]:
    """The marks of each word of a text."""
    marks = []
    for token in marked.split():
        plain = MARK.sub("", token)
        marks += [MARK.findall(token) if plain[start].isalnum() else [] for start, _ in word_spans(plain)]
    return marks
