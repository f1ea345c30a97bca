"""With an engine that copies, loses or doubles placeholders: every value comes back, or its loss is told."""

import json
import logging

import numpy as np
import pytest

from tests.copying_backend import CopyingBackend, without
from tests.small_models import lively
from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer, with_placeholders
from vanilla_transformer.translation.glossary import Glossary
from vanilla_transformer.translation.words import word_attention


TEXTS = [
    "Write to info@example.com before 10:30, please.",
    "The code is AB-1234.",
    "A dog runs.",
    "",
    "Call +49 30 1234567 or (555) 010-0199 now!",
]
ALONE = ["info@example.com", "12345", "😀", "42", "10:30 – 11:30"]


@pytest.fixture(scope="module", params=["added tokens", "several tokens"])
def tokenizer(request):
    learned = train_tokenizer(
        [*TEXTS, "Write to ⟨1⟩ before ⟨2⟩, please."], vocab_size=300, min_frequency=1, show_progress=False
    )
    return with_placeholders(learned, 9) if request.param == "added tokens" else learned


def translator_of(tokenizer, **options) -> Translator:
    return Translator.from_backend(CopyingBackend(**options), tokenizer)


def test_the_model_reads_placeholders_and_the_values_come_back(tokenizer):
    translator = translator_of(tokenizer)
    assert translator(TEXTS) == TEXTS
    read = set(tokenizer.batch_decode(translator.backend.read, skip_special_tokens=True))
    assert read == {
        "Write to ⟨1⟩ before ⟨2⟩, please.",
        "The code is ⟨1⟩.",
        "A dog runs.",
        "Call ⟨1⟩ or ⟨2⟩ now!",
    }
    assert all(best.not_copied == () for (best,) in translator.translate(TEXTS))


def test_other_models_read_the_text_as_it_is(tokenizer):
    translator = translator_of(tokenizer, placeholders=0)
    assert translator([*TEXTS, *ALONE]) == [*TEXTS, *ALONE]
    assert tokenizer.decode(translator.backend.read[-1], skip_special_tokens=True) in ALONE
    assert len(translator.backend.read) == len(TEXTS) + len(ALONE) - 1


def test_a_model_with_one_placeholder_gets_one(tokenizer):
    translator = translator_of(tokenizer, placeholders=1)
    assert translator(TEXTS[0]) == TEXTS[0]
    (read,) = tokenizer.batch_decode(translator.backend.read, skip_special_tokens=True)
    assert read == "Write to ⟨1⟩ before 10:30, please."


def test_a_text_of_nothing_else_is_its_own_translation(tokenizer):
    translator = translator_of(tokenizer, changed=reversed)
    assert translator(ALONE) == ALONE
    assert not translator.backend.read
    for text, ranked in zip(
        ALONE, translator.translate(ALONE, n_best=2, confidence=True, alignment=True), strict=True
    ):
        assert [best.text for best in ranked] == [text, text]
        assert ranked[0].confidence == 1
        number = len(ranked[0].words)
        assert ranked[0].word_alignment == " ".join(f"{index}-{index}" for index in range(number))
    assert translator("12345", prefix="12") == "12345"
    translator(["12345"], prefix="abc")
    assert translator.backend.read  # another beginning is the model's task


@pytest.mark.parametrize("piece", ["⟨2⟩", "2"])
def test_a_lost_placeholder_is_told_and_the_text_translated_as_it_is(tokenizer, piece, caplog):
    """The engine also drops the stop, so that the second translation is not the text."""
    translator = translator_of(tokenizer, changed=without("⟨2⟩", "2", ":")(tokenizer))
    with caplog.at_level(logging.WARNING):
        best = next(translator.translate(TEXTS[:1]))[0]
    assert best.text == "Write to info@example.com before 1030, please."
    assert best.not_copied == ("10:30",)
    assert "Text 1: the translation changes '10:30'." in caplog.text
    assert len(translator.backend.read) == 2


def test_a_loss_that_changes_nothing_is_none(tokenizer):
    translator = translator_of(tokenizer, changed=without("⟨2⟩", "⟨", "2")(tokenizer))
    best = next(translator.translate(["Before 10:30 or 11:45!"]))[0]
    assert (best.text, best.not_copied) == ("Before 10:30 or 11:45!", ())


def test_doubled_and_invented_placeholders_are_not_shown(tokenizer):
    extra = tokenizer("⟨1⟩", add_special_tokens=False)["input_ids"]
    invented = tokenizer("⟨7⟩", add_special_tokens=False)["input_ids"]
    for more in (extra, invented):
        translator = translator_of(tokenizer, changed=lambda ids, more=more: [*more, *ids])
        best = next(translator.translate(["The code is AB-1234."]))[0]
        assert best.text.endswith("The code is AB-1234.")
        assert len(translator.backend.read) == 2


def test_of_several_translations_those_with_all_values_come_first(tokenizer):
    calls = iter(range(100))
    drop = without("⟨1⟩", "⟨")(tokenizer)
    translator = translator_of(tokenizer, changed=lambda ids: drop(ids) if next(calls) == 0 else ids)
    ranked = next(translator.translate(["The code is AB-1234."], n_best=3))
    assert [each.text for each in ranked] == ["The code is AB-1234."] * 3
    assert len(translator.backend.read) == 2


def test_prefixes_have_values_and_may_end_inside_of_one(tokenizer):
    translator = translator_of(tokenizer)
    for prefix in ("Write to", "Write to info@example.com before", "Write to info@example.com before 10:30"):
        assert translator(TEXTS[0], prefix=prefix) == TEXTS[0]
    assert translator(TEXTS[0], prefix="Write to info@exa").startswith("Write to info@exa")
    # As `/alternatives` does: a translation that stops early has the values that it has.
    for length in range(2, 14):
        cut = translator(TEXTS[0], prefix="Write", max_length=length)
        assert TEXTS[0].startswith(cut)


def test_words_are_aligned_and_sure_as_if_the_model_had_read_them(tokenizer):
    translator = translator_of(tokenizer)
    for text in TEXTS:
        best = next(translator.translate([text], alignment=True, confidence=True))[0]
        number = len(best.words)
        assert best.word_alignment == " ".join(f"{index}-{index}" for index in range(number))
        assert "".join(word.text for word in best.words) == text.replace(" ", "")
        assert len(best.tokens) == len(best.log_probabilities)
        assert sum(word.log_probability for word in best.words) == pytest.approx(
            sum(best.log_probabilities) + 0.5 * bool(text)  # the end of sentence
        )
        if text:
            assert best.alignment_weights.shape == (len(best.tokens), len(best.source_tokens))
            np.testing.assert_allclose(best.alignment_weights.sum(-1), 1, atol=1e-6)


def test_a_value_is_aligned_with_itself_wherever_the_model_looked(tokenizer):
    given = translator_of(tokenizer).attend(
        "10:30 or 11:30 or 10:30, see example.com", "example.com 11:30 10:30 10:30 see"
    )
    links = given.word_alignment.split()[:12]
    assert links[:6] == ["13-0", "14-1", "15-2", "4-3", "5-4", "6-5"]
    assert {link.split("-")[0] for link in links[6:]} <= {"0", "1", "2", "8", "9", "10"}
    np.testing.assert_allclose(given.alignment_weights.sum(-1), 1, atol=1e-6)


def test_attention_of_given_translations_and_every_head(tokenizer):
    translator = translator_of(tokenizer)
    source, target = "Write to info@example.com.", "Mail info@example.com!"
    given = translator.attend(source, target)
    assert (given.text, given.source) == (target, source)
    words = word_attention(source, given)
    assert len(words.weights) == len(["Mail", "info", "@", "example", ".", "com", "!"])
    (found,) = next(translator.translate([TEXTS[0]], attention=True))
    shapes = {
        "attention": (len(found.tokens), len(found.source_tokens)),
        "encoder_attention": (len(found.source_tokens),) * 2,
        "decoder_attention": (len(found.tokens), len(found.read_tokens)),
    }
    for name, shape in shapes.items():
        weights = getattr(found, name)
        assert tuple(weights.shape[2:]) == shape
        np.testing.assert_allclose(np.asarray(weights).sum(-1), 1, atol=1e-6)
    (alone,) = next(translator.translate(["12345"], attention=True))  # the model reads it: there is attention to show
    assert alone.text == "12345"
    assert alone.attention.shape[2] == len(alone.tokens)
    assert translator.attend("See 10:30", "Um elf").text == "Um elf"  # other values: as it is


def test_scores_are_of_placeholders_if_both_sides_have_the_values(tokenizer):
    translator = translator_of(tokenizer)
    pairs = [("See 10:30.", "Um 10:30."), ("See 10:30.", "Um 11:30."), ("See 10:30.", "Um 10:30 und 10:30.")]
    tokens = [probability.tokens for probability in translator.score(pairs)]
    assert tokens == [translator.number_of_tokens(text) for text in ("Um ⟨1⟩.", *(target for _, target in pairs[1:]))]


def test_terms_of_a_glossary_are_stronger_than_values_and_none_is_found_in_an_address(tokenizer):
    glossary = Glossary({"10:30": "half", "code AB-1234": "Kode", "example": "Beispiel", "dog": "Hund"})
    translator = translator_of(tokenizer)
    assert glossary.source_terms("info@example.com") == ["example"]
    numbered = []

    def through(texts):
        numbered.extend((request.text, request.glossary.terms_for(request.text)) for _, request in texts)
        return [[next(translator.translate([request.text]))[0]] for _, request in texts]

    from vanilla_transformer.translation.copied_parts import CopiedParts
    from vanilla_transformer.translation.translator import Hypothesis, requests_of

    texts = [TEXTS[0], TEXTS[1], "10:30", "11:30"]
    requests = list(enumerate(requests_of(texts, None, glossary, None, None), start=1))
    results = CopiedParts(9, Hypothesis("")).translate(requests, through)
    assert numbered == [
        ("Write to ⟨1⟩ before 10:30, please.", ["half"]),
        ("The code is AB-1234.".replace("AB-1234", "⟨1⟩"), []),
        ("10:30", ["half"]),
        ("", []),
    ]
    assert [best.text for (best,) in results] == texts
    with_term = list(enumerate(requests_of(["My code AB-1234!"], None, glossary, None, None), start=1))
    numbered.clear()
    CopiedParts(9, Hypothesis("")).translate(with_term, through)
    assert numbered == [("My code AB-1234!", ["Kode"])]


def test_sentences_and_chunks_are_protected_one_by_one(tokenizer):
    pytest.importorskip("sentencex")
    translator = translator_of(tokenizer)
    text = "\n".join(TEXTS[:2]) + " See www.example.com. And 12345!"
    assert translator(text, split_sentences="en") == text
    losing = translator_of(tokenizer, changed=without("⟨1⟩", "⟨", "-")(tokenizer))
    assert next(losing.translate([text], split_sentences="en"))[0].not_copied == ("AB-1234",)
    translator.set_limits(long_texts="chunk", max_source_tokens=24)
    assert translator(text) == text


@pytest.mark.parametrize("backend", ["torch", "ctranslate2", "auto", "ensemble"])
def test_every_engine_translates_the_text_as_it_is_where_an_untrained_model_loses_all(tmp_path, backend):
    """The oracle is the same model that does not know placeholders."""
    if backend in ("ctranslate2", "auto"):
        pytest.importorskip("ctranslate2")
    tokenizer = train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)
    sizes = {"vocab_size": 300, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "initializer_gain": 1.0}
    model = lively(VanillaTransformerForConditionalGeneration(VanillaTransformerConfig.from_preset("tiny", **sizes)))
    for name, number in (("plain", 0), ("knowing", 9)):
        model.config.placeholders = number
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    assert json.loads((tmp_path / "knowing" / "config.json").read_text())["placeholders"] == 9
    plain, knowing = (
        Translator.from_pretrained([tmp_path / name] * 2)
        if backend == "ensemble"
        else Translator.from_pretrained(tmp_path / name, backend=backend)
        for name in ("plain", "knowing")
    )
    options = {"n_best": 2, "max_extra_tokens": 5, "confidence": True}
    expected, found = (list(each.translate(TEXTS, **options)) for each in (plain, knowing))
    for ours, theirs, text in zip(expected, found, TEXTS, strict=True):
        assert [each.text for each in theirs] == [each.text for each in ours]
        assert [each.score for each in theirs] == pytest.approx([each.score for each in ours], abs=1e-4)
        assert bool(theirs[0].not_copied) == any(character in text for character in "@:-(")
    assert knowing(ALONE) == ALONE
    if backend == "ensemble":
        with pytest.raises(ValueError, match="has placeholders=9, but"):
            Translator.from_pretrained([tmp_path / "plain", tmp_path / "knowing"])
