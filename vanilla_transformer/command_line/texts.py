"""Texts on a command line: they may stand before, between and behind the options."""

import re
import shlex
from argparse import Action
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from .dataclass_parser import FALSE, TRUE
from .program import program_name


OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?", re.DOTALL)  # -5 and "--well, yes" are texts
IsValue = Mapping[str, Callable[[str], bool | None]]


def take_texts(words: Sequence[str], actions: Sequence[Action], is_value: IsValue) -> tuple[list[str], list[str]]:
    """Returns the texts among the words of a command line, and the other words.

    An option takes its first value. A list takes further words as far as they are values, and a boolean takes true
    and false. A word that may be a value or a text is a value if there is another text or --input, else it is refused.

    Args:
        words: The command line.
        actions: The options.
        is_value: Says for each option with several values whether a word is one; `None` if it may be a text, too.
    """
    texts: list[str] = []
    others: list[str] = []
    unclear: list[int] = []  # positions in `others`
    left = deque(words)
    while left:
        word = left.popleft()
        if word == "--":
            texts += left
            break
        if not OPTION.fullmatch(word):
            texts.append(word)
            continue
        option, equals, value = word.partition("=")
        action = _named(option, actions)
        if action is not None and action.dest == "text":
            texts += [value] if equals else []
            continue
        others.append(word)
        if action is None or equals:
            continue
        if action.nargs in (None, "+") and _next_is_word(left):
            others.append(left.popleft())
        while action.nargs in ("+", "?") and _next_is_word(left):
            answer = is_value[action.dest](left[0]) if action.nargs == "+" else _is_choice(action, left[0])
            if answer is False:
                break
            unclear += [len(others)] if answer is None else []
            others.append(left.popleft())
    if unclear and not texts and not any(_is_input(word) for word in others):
        word = others.pop(unclear[-1])
        raise ValueError(
            f"{word!r} may be a text or a value of the option before it. A text is clear in front of all options: "
            f"{program_name()} {shlex.join([word, *others])}. A value is clear beside a text or --input."
        )
    return texts, others


def _named(option: str, actions: Sequence[Action]) -> Action | None:
    """The option with this name or, as argparse has it, the only one whose name begins with it."""
    named = [action for action in actions if option in action.option_strings]
    begun = [action for action in actions if any(name.startswith(option) for name in action.option_strings)]
    return named[0] if named else begun[0] if len(begun) == 1 else None


def _next_is_word(left: deque[str]) -> bool:
    return bool(left) and left[0] != "--" and not OPTION.fullmatch(left[0])


def _is_choice(action: Action, word: str) -> bool | None:
    """Whether a word is the value of an option that needs none."""
    if action.choices is not None:
        return word in action.choices
    if word in ("true", "false"):
        return True
    return None if word.lower() in (*TRUE, *FALSE) else False


def _is_input(word: str) -> bool:
    return word.partition("=")[0] == "--input"
