"""Texts as sentences, and back: what is between the sentences stays as it was."""

from collections.abc import Sequence
from typing import Protocol

from vanilla_transformer.translation.long_texts import Pieces

from .words import WordAttention


class SentenceTranslator(Protocol):
    """Translates the sentences of a document."""

    @property
    def language(self) -> str:
        """The language of the sentences."""

    @property
    def target_language(self) -> str:
        """The language of the translations."""

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
    pieces = Pieces.of(text, translator.language)
    ranked = await translator.translate(pieces.texts)
    return [
        pieces.join([translations[rank] for translations in ranked], translator.target_language)
        for rank in range(translator.n_best)
    ]
