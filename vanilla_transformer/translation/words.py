"""Words and the tokens that they consist of: attention and probabilities of words, from those of tokens."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np


if TYPE_CHECKING:
    from .translator import Hypothesis


UNSPACED = "[\u3040-\u30ff\u3400-\u9fff]"  # Chinese and Japanese characters, which count as words each
WORD = re.compile(rf"{UNSPACED}|(?:(?!{UNSPACED})\w)+|[^\w\s]")
SLACK = 8  # characters that tokens may skip: those that have no text of their own, such as parts of a character
END = "</s>"

Span = tuple[int, int]  # first character, and the one after the last


@dataclass(frozen=True)
class WordAttention:
    """How much each word of a translation attends to each word of its source.

    Args:
        source: The spans of the source's words.
        target: The spans of the translation's words.
        weights: [target words, source words + 1]; the last column is the end of the sentence. Rows sum to 1.
    """

    source: list[Span]
    target: list[Span]
    weights: np.ndarray

    @property
    def alignment(self) -> list[int]:
        """For each word of the translation the index of the source word that it attends to most."""
        if not self.source:
            return []
        return [int(index) for index in self.weights[:, :-1].argmax(-1)]


def word_attention(source: str, hypothesis: "Hypothesis") -> WordAttention:
    """Returns the attention of a hypothesis that has an alignment, between words.

    A word's weight is the sum over the tokens of a source word, and the mean over the tokens of a target word.

    Args:
        source: The text that was translated.
        hypothesis: Its translation.
    """
    tokens = np.asarray(hypothesis.alignment_weights, np.float32)  # [T, S]
    source_spans, target_spans = word_spans(source), word_spans(hypothesis.text)
    columns = _membership(words_of_tokens(hypothesis.source_tokens, source), len(source_spans))
    rows = _membership(words_of_tokens(hypothesis.tokens, hypothesis.text), len(target_spans))[:, :-1]
    rows = rows / rows.sum(0).clip(min=1)
    return WordAttention(source_spans, target_spans, rows.T @ tokens @ columns)


def pharaoh(alignment: Sequence[int]) -> str:
    """An alignment in Pharaoh's format, `0-0 2-1`, from the source word of each word."""
    return " ".join(f"{source}-{target}" for target, source in enumerate(alignment))


def word_spans(text: str) -> list[Span]:
    """Words and punctuation marks."""
    return [match.span() for match in WORD.finditer(text)]


def spelled(text: str, spans: Sequence[Span]) -> list[str]:
    """The words themselves. Places in a text depend on how a language counts characters; words do not."""
    return [text[start:end] for start, end in spans]


def words_of_tokens(tokens: Sequence[str], text: str) -> list[int | None]:
    """Index of the word that each token is part of; `None` for the end of the sentence.

    Tokens are found in the text from left to right, whatever their case: some vocabularies have small letters only.
    """
    starts = [start for start, _ in word_spans(text)]
    if len(text.lower()) == len(text):  # a few letters become two
        text, tokens = text.lower(), [token.lower() for token in tokens]
    owners: list[int | None] = []
    position = 0
    for number, token in enumerate(tokens):
        found = text.find(token, position, position + len(token) + SLACK)
        if found >= 0:
            at, position = found, found + len(token)
        elif number == len(tokens) - 1:
            owners.append(None)
            continue
        else:  # a part of a character, or another spelling of the text
            at = position + len(text[position:]) - len(text[position:].lstrip())
        before = sum(start <= at for start in starts) - 1
        owners.append(max(before, 0) if starts else None)
    return owners


def _membership(owners: Sequence[int | None], words: int) -> np.ndarray:
    """[tokens, words + 1], with a 1 where a token is part of a word; the last column is for all other tokens."""
    matrix = np.zeros((len(owners), words + 1), np.float32)
    for token, owner in enumerate(owners):
        matrix[token, words if owner is None else owner] = 1
    return matrix
