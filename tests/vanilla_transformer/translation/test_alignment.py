"""Which word is the translation of which: from a head that learned it, or from averaged attention; in every engine."""

import json

import numpy as np
import pytest
import torch

from tests.small_models import lively
from tests.vanilla_transformer.serving.conftest import BUNDLED
from vanilla_transformer import Hypothesis, Translator, VanillaTransformerConfig
from vanilla_transformer import VanillaTransformerForConditionalGeneration as Model
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.scripts import translate


TEXTS = ["Two men are standing on a ladder.", "A dog runs.", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)


def model_of(**fields) -> Model:
    torch.manual_seed(2)
    sizes = {"vocab_size": 300, "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "initializer_gain": 1.0}
    return lively(Model(VanillaTransformerConfig.from_preset("tiny", **{**sizes, **fields})))


def test_pharaoh_s_links_of_words_by_hand():
    """Three words of two tokens, one and one; the verb is the last word of the text."""
    rows = ([0.6, 0.0, 0.2, 0.2], [0.3, 0.0, 0.7, 0.0], [0, 0.1, 0.2, 0.7], [0.1, 0.8, 0.1, 0.0], [0, 0, 0, 1])
    hypothesis = Hypothesis(
        "Hunde laufen.",
        source="dogs , run",
        source_tokens=("dogs", ",", "run", "</s>"),
        tokens=("Hu", "nde", "laufen", ".", "</s>"),
        alignment_weights=np.array(rows),
    )
    assert hypothesis.alignment == [(0, 0), (2, 1), (3, 2), (1, 3), (3, 4)]
    # "Hunde" has the mean of its tokens: 0.45 of "dogs" and 0.45 of "run", of which the first wins.
    assert hypothesis.word_alignment == "0-0 2-1 1-2"
    with pytest.raises(ValueError, match="translate with alignment=True"):
        _ = Hypothesis("Hunde").word_alignment


@pytest.mark.parametrize("layer", [None, 0, 2])
def test_the_head_that_learned_links_is_used_in_torch_and_ctranslate2(tokenizer, layer):
    model = model_of(alignment_layer=layer)
    in_torch = list(Translator(model, tokenizer).translate(TEXTS, attention=True, max_extra_tokens=4))
    for (best,) in in_torch[:-1]:
        expected = best.attention[1].mean(0) if layer is None else best.attention[layer][0]
        torch.testing.assert_close(best.alignment_weights, expected)
    assert in_torch[-1][0].alignment == []
    assert in_torch[-1][0].word_alignment == ""
    pytest.importorskip("ctranslate2")
    translator = Translator(model, tokenizer, backend="ctranslate2")
    for ours, theirs in zip(in_torch, translator.translate(TEXTS, alignment=True, max_extra_tokens=4), strict=True):
        assert theirs[0].text == ours[0].text
        assert theirs[0].attention is None
        assert theirs[0].word_alignment == ours[0].word_alignment
        if ours[0].text:
            np.testing.assert_allclose(theirs[0].alignment_weights, ours[0].alignment_weights, atol=1e-4)


def test_engines_without_attention_refuse_it_by_name(tokenizer):
    with pytest.raises(ValueError, match=r"An ensemble does not support alignment=True"):
        Translator.from_pretrained([BUNDLED, BUNDLED]).translate(TEXTS, alignment=True)
    for options in ({"split_sentences": "en"}, {"split_sentences": True}):
        with pytest.raises(ValueError, match=r"alignment is for single sentences"):
            Translator(model_of(), tokenizer).translate(TEXTS, alignment=True, **options)


def test_the_command_writes_them_before_the_translation_and_into_tables(tmp_path, capsys):
    command = ["--model", str(BUNDLED), "--alignment"]
    translate.main(["Two men are standing on a ladder.", "", *command])
    lines = capsys.readouterr().out.splitlines()
    links, text = lines[0].split("\t")
    (best,) = next(Translator.from_pretrained(BUNDLED).translate(TEXTS[:1], alignment=True))
    assert (links, text) == (best.word_alignment, best.text)
    assert {"0-0", "1-1", "6-5"} <= set(links.split())  # Two Zwei, men Männer, ladder Leiter
    assert lines[1] == "\t"
    for name in ("in.jsonl", "in.parquet"):
        if name == "in.jsonl":
            (tmp_path / name).write_text(json.dumps({"text": TEXTS[0]}))
        else:
            parquet = pytest.importorskip("pyarrow.parquet")
            parquet.write_table(pytest.importorskip("pyarrow").table({"text": TEXTS[:1]}), tmp_path / name)
        output = tmp_path / f"{name}.out"
        translate.main([*command, "--input", str(tmp_path / name), "--output", str(output), "--shards", "1"])
        if name == "in.jsonl":
            row = json.loads((output / "translations.jsonl").read_text())
        else:
            (row,) = parquet.read_table(output / "translations.parquet").to_pylist()
        assert row == {"text": TEXTS[0], "translation": text, "translation_word_alignment": links}


def test_an_empty_source_is_attended_to_alone(tokenizer):
    """CTranslate2 gave no weights for it, and `/attention` failed."""
    pytest.importorskip("ctranslate2")
    model = model_of()
    in_torch, fast = Translator(model, tokenizer), Translator(model, tokenizer, backend="ctranslate2")
    for target in ("A dog runs.", ""):
        expected, weights = (each.attend("", target).alignment_weights for each in (in_torch, fast))
        np.testing.assert_allclose(np.asarray(weights), np.asarray(expected), atol=1e-6)


def test_texts_beyond_the_positions_of_ctranslate2_are_torch_s_or_refused(tokenizer, tmp_path):
    """`auto` gave the pairs that torch had decoded back to CTranslate2, which failed with an error of its own."""
    pytest.importorskip("ctranslate2")
    model = model_of(max_position_embeddings=16)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    auto = Translator.from_pretrained(tmp_path)
    assert auto.backend.fast.longest_input == 16
    text = "Two men are standing on a ladder. " * 8
    options = {"alignment": True, "confidence": True, "max_extra_tokens": 20}
    ours, theirs = (next(each.translate([text], **options))[0] for each in (Translator(model, tokenizer), auto))
    assert len(ours.tokens) > 16
    assert (theirs.text, theirs.word_alignment) == (ours.text, ours.word_alignment)
    assert theirs.log_probabilities == pytest.approx(ours.log_probabilities, abs=1e-4)
    ids = auto.tokenizer(text)["input_ids"]
    for call in (auto.backend.fast.score, auto.backend.fast.attend):
        with pytest.raises(ValueError, match="CTranslate2 has 16 positions for this model, too few for"):
            call([ids], [ids])
