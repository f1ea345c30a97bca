"""A text in pieces: its sentences, or parts that are short enough for a model, translated one by one and joined again.

    split_sentences("A dog runs. A cat sleeps.\\n\\n  The end.", "en")
    # ['A dog runs. ', 'A cat sleeps.\\n', '\\n', '  The end.']

The boundaries come from sentencex (`pip install sentencex`), which knows the abbreviations of many languages.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vanilla_transformer.hub.languages import base_of


MAX_SOURCE_TOKENS = 1024  # of a text that is translated in one piece, unless the user sets another limit
_WHITE_SPACE = re.compile(r"\s")
_WITHOUT_SPACES = ("ja", "th", "zh")  # languages that put no space between sentences


@dataclass(frozen=True)
class Pieces:
    """A text in pieces. What is between them stays as it is.

    Args:
        parts: The pieces with the white space around them. Joined they are the text.
    """

    parts: list[str]

    @classmethod
    def of(
        cls,
        text: str,
        language: str,
        *,
        sentences: bool = True,
        length: Callable[[str], int] | None = None,
        limit: int = 0,
    ) -> "Pieces":
        """Cuts a text.

        Args:
            text: Any text.
            language: Its language, a code such as `"en"`.
            sentences: Whether it is cut into sentences.
            length: Returns the number of tokens of a text. If it is given, pieces beyond the limit are cut further.
            limit: The most tokens of a piece.
        """
        parts = split_sentences(text, language) if sentences else [text]
        if length is not None:
            short = (
                [part] if length(part) <= limit else split_into_chunks(part, language, length, limit) for part in parts
            )
            parts = [piece for pieces in short for piece in pieces]
        return cls(parts)

    @property
    def texts(self) -> list[str]:
        """What is to be translated: the pieces without white space around them. Pieces of white space are left out."""
        return [part.strip() for part in self.parts if part.strip()]

    def join(self, translations: Sequence[str], language: str | None) -> str:
        """Puts the translations of `texts` in their places.

        Args:
            translations: One for each of `texts`.
            language: Their language. In most there is a space between two sentences, also if the source has none.
        """
        separator = "" if language is not None and base_of(language) in _WITHOUT_SPACES else " "
        text, remaining = "", iter(translations)
        for part in self.parts:
            before, sentence, after = trimmed(part)
            if text and sentence and not text[-1].isspace() and not before:
                text += separator
            text += before + (next(remaining) if sentence else "") + after
        return text


def split_sentences(text: str, language: str) -> list[str]:
    """Splits a text into sentences with the white space around them. The pieces join to exactly the text.

    A line break always ends a piece, so lines stay lines. White space before the first sentence of a line belongs to
    that sentence, other white space to the sentence before it.

    Args:
        text: Any text.
        language: Its language, a code such as `"en"`, `"de_DE"` or `"zh-Hans"`. A language that sentencex does not
            know is split as a related one.
    """
    pieces = []
    for line in text.splitlines(keepends=True):
        pieces += _split_line(line, base_of(language))
    return pieces


def trimmed(piece: str) -> tuple[str, str, str]:
    """Returns the white space before a sentence, the sentence, and the white space after it."""
    sentence = piece.strip()
    start = len(piece) - len(piece.lstrip()) if sentence else len(piece)
    return piece[:start], sentence, piece[start + len(sentence) :]


def _split_line(line: str, language: str) -> list[str]:
    """Splits one line. All white space becomes plain spaces for sentencex, which fails on some other kinds."""
    try:
        from sentencex import segment
    except ImportError as error:
        raise ImportError("Splitting sentences needs sentencex: pip install sentencex") from error
    end, sentence_end = 0, len(line) - len(line.lstrip())
    pieces = []
    for sentence in segment(language, _WHITE_SPACE.sub(" ", line.strip())):
        sentence_end += len(sentence)
        pieces.append(line[end:sentence_end])
        end = sentence_end
    return [*pieces[:-1], (pieces[-1] if pieces else "") + line[end:]]


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
