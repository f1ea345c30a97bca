"""A glossary finds whole words, prefers long terms, and reads a file of two columns."""

import pytest
import torch

from vanilla_transformer.models.tokenization_vanilla_transformer import (
    CAPITAL_MARK,
    CAPITALS_MARK,
    capitals_in,
    train_tokenizer,
)
from vanilla_transformer.translation.glossary import Glossary, continuing_tokens


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("A dog barks.", ["Hund"]),
        ("DOG! dog, dog", ["Hund"]),
        ("Dogs and hotdogs", []),
        ("a hot  dog for the dog", ["Hotdog", "Hund"]),
        ("the dog-house", ["Hund"]),
        ("C++ is hard", ["C++-Sprache"]),
        ("我的狗很大", ["Hund"]),
        ("", []),
    ],
)
def test_terms_of_a_text(text, terms):
    glossary = Glossary({"dog": "Hund", "hot dog": "Hotdog", "C++": "C++-Sprache", "狗": "Hund"})
    assert glossary.terms_for(text) == terms


@pytest.mark.parametrize(
    ("term", "text"),
    [
        ("Straße", "Die Straße ist lang."),
        ("Straße", "DIE STRASSE"),
        ("strasse", "Straße"),
        ("İzmir", "Das ist İzmir."),
        ("Müller", "Herr Mu\u0308ller"),
        ("Mu\u0308ller", "Herr MÜLLER"),
        ("hot  dog", "a hot dog"),
        ("hot\tdog", "a Hot\u00a0Dog!"),
        ("hot\u00a0dog", "a hot \t dog"),
        (" hot\n dog ", "hot dog"),
    ],
)
def test_spelling_of_white_space_case_and_accents_does_not_matter(term, text, tmp_path):
    """These were ignored, or ended in a KeyError."""
    assert Glossary({term: "x"}).terms_for(text) == ["x"]
    if "\t" not in term and "\n" not in term:
        path = tmp_path / "terms.tsv"
        path.write_text(f"{term}\tx\n", encoding="utf-8")
        assert Glossary.from_file(path).terms_for(text) == ["x"]


def test_accents_are_part_of_words_and_terms_have_one_translation():
    assert Glossary({"x": "y", "u": "v"}).terms_for("x\u030c u\u0308 x\u030cx \u0308u") == []
    with pytest.raises(ValueError, match="two translations of 'STRASSE'"):
        Glossary({"Straße": "road", "STRASSE": "street"})


def test_a_file_has_two_columns(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("# animals\ndog\tHund\n\n cat \t Katze \n", encoding="utf-8")
    assert Glossary.from_file(path).terms_for("cat and dog") == ["Katze", "Hund"]
    for content, message in [
        ("dog Hund\n", r"line 1: 'dog Hund' is not a source term, a tab and a target term"),
        ("dog\tHund\nDog\tKöter\n", r"line 2: 'Dog' has two translations"),
    ]:
        path.write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            Glossary.from_file(path)
    path.write_bytes(b"dog\tHund\ncat\tK\xe4tzchen\n")  # Latin-1
    with pytest.raises(ValueError, match=r"terms\.tsv, line 2: byte 6 is not UTF-8"):
        Glossary.from_file(path)
    with pytest.raises(ValueError, match="no glossary"):
        Glossary.from_file(tmp_path / "nothing.tsv")
    with pytest.raises(ValueError, match="give a term on both sides"):
        Glossary({"dog": " "})


def test_tokens_that_continue_a_word():
    tokenizer = train_tokenizer(["ab abc abcd, ab."] * 3, vocab_size=270, show_progress=False)
    continues = continuing_tokens(tokenizer, 280)
    assert continues.dtype == torch.bool
    first, *rest = tokenizer("zq, zq", add_special_tokens=False)["input_ids"]
    assert not continues[first]
    assert [bool(continues[token]) for token in rest if tokenizer.decode([token]) == "q"] == [True, True]
    assert not continues[tokenizer.convert_tokens_to_ids(",")]
    marking = train_tokenizer(["Ab AB Über"] * 3, vocab_size=290, capitals=capitals_in(["Ü"]), show_progress=False)
    marks = marking(CAPITAL_MARK + CAPITALS_MARK, add_special_tokens=False)["input_ids"]
    assert not continuing_tokens(marking, 290)[marks[-2:]].any(), "a word with a mark is a word of its own"
    assert not continues[tokenizer.eos_token_id]
