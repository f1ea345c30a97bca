"""Placeholders for the parts of a text that no translation changes: addresses, telephone numbers, codes, prices.

    text, values = protect("Write to info@example.com before 10:30.")   # 'Write to ⟨1⟩ before ⟨2⟩.'
    restore("Schreiben Sie vor ⟨2⟩ an ⟨1⟩.", values)     # 'Schreiben Sie vor 10:30 an info@example.com.'

Numbers of one digit and ordinals stay in the text, because languages inflect and spell them.
"""

import re
from collections import Counter
from collections.abc import Container, Sequence
from functools import cache

from .glossary import FIRST_LETTER_WITHOUT_SPACES


MOST_PLACEHOLDERS = 9  # one digit each
PLACEHOLDERS = tuple(f"⟨{number}⟩" for number in range(1, MOST_PLACEHOLDERS + 1))
_PLACEHOLDER = re.compile("⟨([1-9])⟩")
_CUT_OFF = re.compile("⟨[1-9]?$")

# Every repetition below is bounded, or its parts can't match the same letter: the time is linear in the text.
_W = rf"[^\W{FIRST_LETTER_WITHOUT_SPACES}-\U0010ffff]"  # letters and digits of scripts with spaces between words
_LETTER = rf"[^\W\d_{FIRST_LETTER_WITHOUT_SPACES}-\U0010ffff]"
_START, _END = rf"(?<!{_W})", rf"(?!{_W})"
_SPACE = "[ \u00a0\u2009\u202f]"

_TOP_LEVELS = (
    "com|org|net|edu|gov|mil|int|info|biz|name|io|dev|app|ai|co|tv|ly|gg|xyz|online|shop|"
    "store|site|blog|cloud|club|news|social|tech|wiki|museum|travel|berlin|paris|london|eu|de|at|"
    "ch|li|lu|fr|be|nl|es|pt|it|uk|ie|us|ca|mx|ar|cl|br|pe|uy|cn|hk|tw|jp|kr|sg|au|nz|"
    "za|ru|ua|pl|cz|sk|hu|ro|bg|gr|tr|il|se|dk|fi|ee|lv|lt|hr|rs|si"
)
_TOP_LEVEL = f"(?:{_TOP_LEVELS}|{_TOP_LEVELS.upper()})"
_LABELS = rf"(?:{_W}(?:{_W}|-){{0,62}}\.){{1,8}}"  # `docs.example.` of docs.example.com
_IN_PATH = rf"(?:{_W}|[/#=&~%+$*@-])"
_PATH = rf"(?:[.,;:!?']*(?:{_IN_PATH}|\((?:{_IN_PATH}|[.,;:!?'])*\)))"  # ends before punctuation of the sentence

_NUMBER = rf"(?:[0-9]{{1,3}}(?:(?:{_SPACE}|['’])[0-9]{{3}})+(?:[.,][0-9]+)?(?![0-9])|[0-9]+(?:[.,][0-9]+)*)"
_SIGN = r"(?:(?:US|AU|CA|NZ|HK|MX|NT|[ACRS])?\$|[€£¥￥¢₹₽₩₺₴₫₪₱₿฿])"
_CURRENCY = (
    "(?:EUR|USD|GBP|CHF|CNY|RMB|JPY|CAD|AUD|NZD|HKD|SGD|TWD|KRW|INR|MXN|ARS|CLP|BRL|SEK|NOK|DKK|PLN|CZK|HUF|RON|RUB|"
    "UAH|TRY|ILS|THB|ZAR|BTC)"
)
_TIME = "[0-2]?[0-9]:[0-5][0-9](?::[0-5][0-9])?"
_ORDINAL = rf"(?:st|nd|rd|th|er|re|e|ème|º|ª){_END}"

_KINDS = {
    "web address": rf"{_START}(?:(?:https?|ftp)://|www\.){_PATH}+",
    "e-mail address": rf"{_START}{_W}(?:{_W}|[.%+-]){{0,63}}@{_LABELS}[A-Za-z]{{2,24}}{_END}",
    "domain": rf"{_START}{_LABELS}{_TOP_LEVEL}(?!{_W}|-|@)(?::[0-9]{{2,5}})?(?:[/?#]{_PATH}+|/)?",
    "handle": rf"{_START}@{_LETTER}(?:[.-]?{_W}){{1,40}}(?:@{_LABELS}[A-Za-z]{{2,24}})?{_END}",
    "tag": rf"{_START}#[0-9]{{0,8}}{_LETTER}{_W}*",
    "price": rf"{_START}(?:{_SIGN}|{_CURRENCY}){_SPACE}?{_NUMBER}(?![0-9])"
    rf"|{_START}{_NUMBER}{_SPACE}?(?:{_SIGN}(?![0-9])|{_CURRENCY}{_END})",
    "date": rf"{_START}[0-9]{{1,4}}[/.-][0-9]{{1,2}}[/.-][0-9]{{2,4}}(?:T{_TIME}(?:\.[0-9]+)?Z?)?(?![0-9/-])",
    "time": rf"{_START}{_TIME}(?![0-9:])",
    "telephone number": rf"{_START}\+[0-9](?:[ \u00a0./()-]{{0,2}}[0-9]){{6,16}}(?![0-9])"
    rf"|{_START}\([0-9]{{2,5}}\)[ \u00a0-]?[0-9](?:[ \u00a0-]?[0-9]){{4,11}}(?![0-9])"
    rf"|{_START}0[0-9](?:[ \u00a0./-]?[0-9]){{4,12}}(?![0-9])"
    rf"|{_START}[0-9]{{3}}-[0-9]{{4}}(?![0-9])"
    rf"|{_START}[0-9]{{2,4}}(?:[ \u00a0.-][0-9]{{2,4}}){{2,7}}(?![0-9])",
    "bank account": rf"{_START}[A-Z]{{2}}[0-9]{{2}}(?: ?[A-Z]{{4}})?(?: ?[0-9]{{4}}){{2,6}}(?: ?[0-9][0-9A-Z]{{3}})?"
    rf"(?: ?[0-9]{{1,3}})?{_END}",
    "code": rf"{_START}(?![0-9]{{1,2}}[AP]M)(?=[0-9/_-]{{0,20}}[A-Z][A-Z/_-]{{0,20}}[0-9])"  # a digit after a letter
    rf"[A-Z0-9]+(?:[/_-][A-Z0-9]+)*{_END}",
    "number": rf"{_START}[-−+±]?[vV]?(?:[0-9]{{1,3}}(?:(?:{_SPACE}|['’])[0-9]{{3}})+(?:[.,][0-9]+)?"
    rf"|[0-9]+(?:[.,][0-9]+)+)(?![0-9]|{_ORDINAL})|{_START}[-−+±]?[0-9]{{2,}}(?!{_W}|[.,/][0-9]|\. {_LETTER})",
}
_SIGNS = re.compile(r"[0-9@#]|://|\w\.\w")  # every kind has one of them: most texts are done here


@cache
def _copied() -> re.Pattern[str]:
    """Returns the pattern of everything that is copied. Compiling it takes a tenth of a second."""
    return re.compile("|".join(_KINDS.values()))


def protect(text: str, most: int = MOST_PLACEHOLDERS, *, but: Container[str] = ()) -> tuple[str, tuple[str, ...]]:
    """Replaces what must be copied by `⟨1⟩`, `⟨2⟩` ..., and returns the values by number.

    Args:
        text: The text. One that contains a placeholder is returned as it is.
        most: Number of placeholders at most; what comes after the last stays in the text.
        but: Values that stay in the text.
    """
    values: list[str] = []
    if not _SIGNS.search(text) or _PLACEHOLDER.search(text):
        return text, ()

    def replace(match: re.Match[str]) -> str:
        if match[0] in but or len(values) >= min(most, MOST_PLACEHOLDERS):
            return match[0]
        values.append(match[0])
        return PLACEHOLDERS[len(values) - 1]

    return _copied().sub(replace, text), tuple(values)


def protect_like(text: str, values: tuple[str, ...], *, complete: bool = True) -> str | None:
    """Replaces values in a given translation by their placeholders; `None` if it has other things to copy.

    Args:
        text: The translation.
        values: The values of its source, by number.
        complete: Whether each value must be there. A beginning of a translation may have a part of them.
    """
    protected, found = protect(text)
    if not _are_among(found, values, complete):
        return None
    unused = list(enumerate(values))
    numbers = []
    for value in found:
        number = next(number for number, other in unused if other == value)
        unused.remove((number, value))
        numbers.append(number)
    remaining = iter(numbers)
    return _PLACEHOLDER.sub(lambda _: PLACEHOLDERS[next(remaining)], protected) if found else text


def restore(text: str, values: tuple[str, ...], *, complete: bool = True) -> str | None:
    """Puts values back in place of their placeholders; `None` if one is missing, doubled or invented.

    Placeholders of equal values may stand for each other.

    Args:
        text: The translation of a protected text.
        values: The values of its source, by number.
        complete: Whether each value must be there. In a beginning, a placeholder that is cut off is left out.
    """
    if not values:
        return text
    numbers = [int(number) - 1 for number in _PLACEHOLDER.findall(text)]
    if max(numbers, default=0) >= len(values):
        return None
    if not _are_among([values[number] for number in numbers], values, complete):
        return None
    whole = text if complete else _CUT_OFF.sub("", text)
    return _PLACEHOLDER.sub(lambda match: values[int(match[1]) - 1], whole)


def find_placeholders(text: str) -> list[tuple[int, int]]:
    """Returns first character and end of each placeholder."""
    return [match.span() for match in _PLACEHOLDER.finditer(text)]


def _are_among(found: Sequence[str], values: Sequence[str], complete: bool) -> bool:
    """Whether no value was found more often than there is, and none is missing."""
    surplus = Counter(found) - Counter(values)
    return not surplus and (len(found) == len(values) or not complete)


def is_copied(text: str) -> bool:
    """Returns whether a text has nothing to translate: no letter outside what is copied, such as `42` or `😀`."""
    rest = _copied().sub("", text) if _SIGNS.search(text) else text
    return not any(map(str.isalpha, rest))
