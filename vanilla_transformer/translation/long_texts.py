"""A text that is too long for a model in chunks: its sentences, and parts of those that are too long themselves."""

import re
from collections.abc import Callable, Iterator

from .sentences import split_sentences


MAX_SOURCE_TOKENS = 1024  # of a text that is translated in one piece, unless the user sets another limit


def split_into_chunks(text: str, language: str, length: Callable[[str], int], limit: int) -> list[str]:
    """Splits a text into its sentences. A sentence beyond the limit is split at spaces, a word beyond it anywhere.

    The chunks join to exactly the text.

    Args:
        text: Any text.
        language: Its language, a code such as `"en"`.
        length: Returns the number of tokens of a text.
        limit: The most tokens of a chunk.
    """
    chunks: list[str] = []
    for sentence in split_sentences(text, language):
        chunks += [sentence] if length(sentence) <= limit else _packed(_words(sentence, length, limit), length, limit)
    return chunks


def _words(text: str, length: Callable[[str], int], limit: int) -> Iterator[str]:
    """Yields the words of a text with the white space after them, and words beyond the limit in pieces."""
    for word in re.findall(r"\S+\s*|\s+", text):
        pieces = [word]
        while pieces:
            piece = pieces.pop()
            if len(piece) < 2 or length(piece) <= limit:
                yield piece
            else:
                pieces += [piece[len(piece) // 2 :], piece[: len(piece) // 2]]  # the first half is popped first


def _packed(pieces: Iterator[str], length: Callable[[str], int], limit: int) -> list[str]:
    """Joins pieces as long as the sum of their lengths is within the limit."""
    packed: list[str] = []
    room = 0
    for piece in pieces:
        if not packed or length(piece) > room:
            packed.append("")
            room = limit
        packed[-1] += piece
        room -= length(piece)
    return packed
