"""The language of a text, where none is given.

    detect("Hallo, wie geht's dir?", ["en", "de", "fr"])     # Detection(language='de', confidence=0.67)
    detect("Hotel", ["en", "de", "fr"])                      # Detection(language='en', confidence=0.0): assumed

eld compares the byte n-grams of a text with those of 60 languages. Han characters decide for Chinese.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from vanilla_transformer.hub.languages import Directions, Languages, base_of, known_languages


AUTO = "auto"  # as a source language: find it
READ = 1000  # characters of a text that are read; eld reads fewer
# By how much the best language must lead the second one, in eld's score, which is from 0 to about 1. Two words need a
# clear lead, and one word never has it: "hat", "pie" and "stolen" are English, German, Spanish ...
LEAD, LEAD_OF_TWO_WORDS = 0.01, 0.25
# What decides for a language in one or two words.
_MARKS = {"es": re.compile("[¿¡]"), "fr": re.compile("[\u00a0\u202f][!?;:]"), "de": re.compile("ß")}
_HAN, _KANA = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]"), re.compile(r"[\u3040-\u30ff]")
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


class Detection(NamedTuple):
    """The language of a text.

    Args:
        language: The language.
        confidence: Its share of the score of the two best languages; 0 if the language is assumed.
    """

    language: str
    confidence: float

    @property
    def is_certain(self) -> bool:
        return self.confidence > 0


def detect(text: str, languages: Sequence[str]) -> Detection:
    """Returns the language of a text; the first one, with confidence 0, if the text does not say.

    Args:
        text: Any text.
        languages: The languages that it may have, codes such as `"en"` or `"zh_CN"`.
    """
    assumed = Detection(languages[0], 0.0)
    codes = {base_of(language): language for language in reversed(languages)}
    text = text[:READ].encode(errors="replace").decode()  # eld takes no lone surrogates
    if len(codes) < 2 or not _WORD.search(text):
        return assumed
    detector, cleaned, known = _eld()
    text = cleaned(text)  # of web addresses and codes
    words = len(_WORD.findall(_HAN.sub(" ", text)))
    if "zh" in codes and (han := len(_HAN.findall(text))) and han >= words and not _KANA.search(text):
        return Detection(codes["zh"], 1.0)
    if not codes.keys() <= known:
        return assumed
    marked = [code for code, mark in _MARKS.items() if words < 3 and code in codes and mark.search(text)]
    if marked or words < 2:
        return Detection(codes[marked[0]], 1.0) if marked else assumed
    scores = detector.detect(text).scores()
    (second, _), (best, code) = sorted((scores.get(code, 0.0), code) for code in codes)[-2:]
    if best - second < (LEAD_OF_TWO_WORDS if words == 2 else LEAD):
        return assumed
    return Detection(codes[code], best / (best + second))


def languages_of_text(
    text: str, given: Languages, directions: Directions, model: str = "the model"
) -> tuple[Languages, Detection | None]:
    """Returns the languages of a text in the model's spelling, and how its source language was found.

    Where several source languages are possible and none is given, the text decides. A text in the target language has
    that as its source, too: it needs no translation. A language that can't be translated into the target is not taken
    from the text.

    Args:
        text: The text.
        given: The languages; `None`, or `"auto"` for the source, if they are not given.
        directions: The directions of the model; none if they are not known.
        model: Its name, for messages.
    """
    if not directions:
        if given.source == AUTO:
            raise ValueError(
                "source_lang='auto': the model does not record which languages it reads: give source_lang."
            )
        return given, None
    named = Languages(None if given.source == AUTO else given.source, given.target)
    source, target = known_languages(directions, named, model)
    sources = list(dict.fromkeys(str(each.source) for each in directions))
    if source is not None or len(sources) == 1:
        return Languages(source, target), None
    fitting = [str(each.source) for each in directions if target in (None, each.target)]
    found = detect(text, [*sources, *([target] if target else [])])
    if not found.is_certain or found.language not in (*fitting, target):
        found = Detection(fitting[0] if fitting else sources[0], 0.0)
    return Languages(found.language, target), found


def is_unchanged(languages: Languages) -> bool:
    """Whether a text is in the target language, so that it needs no translation."""
    return languages.source == languages.target is not None


@cache
def _eld() -> tuple[Any, Any, set[str]]:
    """Loads eld, which takes 0.1 s and 50 MB: its detector, its removal of web addresses, and its languages."""
    from eld import LanguageDetector
    from eld.languageData import languageData
    from eld.languageDetector import get_clean_txt

    return LanguageDetector(), get_clean_txt, set(languageData.lang_codes.values())
