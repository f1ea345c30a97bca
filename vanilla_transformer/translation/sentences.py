"""A document as sentences: the translator reads one sentence at a time.

    split_sentences("A dog runs. A cat sleeps.\\n\\n  The end.", "en")
    # ['A dog runs. ', 'A cat sleeps.\\n', '\\n', '  The end.']

The boundaries come from sentencex (`pip install sentencex`), which knows the abbreviations of many languages.
"""

import re
from collections.abc import Sequence


_WHITE_SPACE = re.compile(r"\s")
_WITHOUT_SPACES = ("ja", "th", "zh")  # languages that put no space between sentences


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
        pieces += _split_line(line, re.split("[-_]", language)[0].lower())
    return pieces


def trimmed(piece: str) -> tuple[str, str, str]:
    """Returns the white space before a sentence, the sentence, and the white space after it."""
    sentence = piece.strip()
    start = len(piece) - len(piece.lstrip()) if sentence else len(piece)
    return piece[:start], sentence, piece[start + len(sentence) :]


def join_translations(pieces: Sequence[str], translations: Sequence[str], language: str | None) -> str:
    """Puts the translations of sentences in the place of the sentences. White space stays as it is.

    Args:
        pieces: What `split_sentences` returned.
        translations: The translation of each piece.
        language: The language of the translations. In most there is a space between two sentences, also if the
            source has none.
    """
    separator = "" if language is not None and re.split("[-_]", language)[0].lower() in _WITHOUT_SPACES else " "
    text = ""
    for piece, translation in zip(pieces, translations, strict=True):
        before, sentence, after = trimmed(piece)
        if text and sentence and not text[-1].isspace() and not before:
            text += separator
        text += before + translation + after
    return text


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
