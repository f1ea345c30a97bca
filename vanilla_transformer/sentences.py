"""A document as sentences: the translator reads one sentence at a time.

    split_sentences("A dog runs. A cat sleeps.\\n\\n  The end.", "en")
    # ['A dog runs. ', 'A cat sleeps.\\n', '\\n', '  The end.']

The boundaries come from sentencex (`pip install sentencex`), which knows the abbreviations of many languages.
"""

import re


_WHITE_SPACE = re.compile(r"\s")


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
