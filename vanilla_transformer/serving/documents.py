"""Texts as sentences, and back: what is between the sentences stays as it was."""

from collections.abc import Sequence
from typing import Protocol

from ..sentences import split_sentences
from .words import WordAttention


class SentenceTranslator(Protocol):
    """Translates the sentences of a document."""

    @property
    def language(self) -> str:
        """The language of the sentences."""

    @property
    def n_best(self) -> int:
        """The number of translations of each sentence."""

    async def translate(self, sentences: Sequence[str]) -> list[list[str]]:
        """Returns `n_best` translations of each sentence, best first."""

    async def align(self, sentence: str, translation: str) -> WordAttention:
        """Returns how a translation attends to its sentence."""


async def translate_text(text: str, translator: SentenceTranslator) -> list[str]:
    """Translates plain text sentence by sentence. Line breaks and the white space between sentences stay.

    Returns:
        `n_best` texts: the first is made of the best translation of each sentence, the second of the second best.
    """
    pieces = [trimmed(piece) for piece in split_sentences(text, translator.language)]
    translations = iter(await translator.translate([sentence for _, sentence, _ in pieces if sentence]))
    texts = [""] * translator.n_best
    for before, sentence, after in pieces:
        ranked = next(translations) if sentence else texts
        for rank in range(translator.n_best):
            texts[rank] += before + (ranked[rank] if sentence else "") + after
    return texts


def trimmed(text: str) -> tuple[str, str, str]:
    """White space before a text, the text without it, white space after it."""
    inner = text.strip()
    start = len(text) - len(text.lstrip()) if inner else len(text)
    return text[:start], inner, text[start + len(inner) :]
