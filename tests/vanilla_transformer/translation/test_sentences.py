"""Splitting text into sentences loses nothing, knows abbreviations and keeps lines."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vanilla_transformer.translation.long_texts import Pieces, split_sentences, trimmed


# White space of all kinds, sentence ends, quotes and characters of one to four bytes in UTF-8.
CHARACTERS = st.sampled_from([*"aAzZ1 .!?。…\"'„“«»()\t\n\r\x0b\x0c\x85\xa0\u2028\u3000ßЖ😀", "Dr. ", "z. B. "])


@settings(deadline=None, max_examples=300)
@given(st.lists(CHARACTERS).map("".join), st.sampled_from(["en", "de", "fr", "zh", "unknown"]))
def test_pieces_join_to_the_text_and_none_spans_lines(text, language):
    pieces = split_sentences(text, language)
    assert "".join(pieces) == text
    assert all(len(piece.splitlines()) == 1 for piece in pieces)
    assert all("".join(trimmed(piece)) == piece for piece in pieces)
    assert Pieces(pieces).join(Pieces(pieces).texts, "zh") == text


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        ("", "en", []),
        ("  \n", "en", ["  \n"]),
        ("Mr. Smith runs. He is fast.", "en", ["Mr. Smith runs. ", "He is fast."]),
        ("Das ist z. B. gut. Dr. Müller kommt.", "de_DE", ["Das ist z. B. gut. ", "Dr. Müller kommt."]),
        ("你好。再见！", "zh-Hans", ["你好。", "再见！"]),
        ("A dog\nruns. A cat.\n\n  The end.\t\n", "en", ["A dog\n", "runs. ", "A cat.\n", "\n", "  The end.\t\n"]),
    ],
)
def test_sentences_of_several_languages_and_lines(text, language, sentences):
    assert split_sentences(text, language) == sentences


def test_sentences_without_a_space_between_them_get_one_if_the_language_has_spaces():
    pieces = Pieces.of("你好。再见！\n", "zh")
    assert pieces.join(["Hello.", "Goodbye!"], "en") == "Hello. Goodbye!\n"
    assert pieces.join(["A.", "B."], "ja-JP") == "A.B.\n"


def test_without_sentencex_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(ImportError, match="pip install sentencex"):
        split_sentences("A dog runs.", "en")
