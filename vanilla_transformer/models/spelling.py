"""Hints for misspelt names."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns ` (did you mean 'x'?)` for the known name that is closest to a word, or nothing.

    Args:
        word: The name that was given.
        known: The names there are.
        cutoff: How similar two names must be, from 0 to 1.
    """
    matches = get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
