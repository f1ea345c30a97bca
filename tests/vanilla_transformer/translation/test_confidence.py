"""Probabilities of tokens and words are the model's, and a calibration turns them into confidence."""

import json
import math

import pytest

from tests.vanilla_transformer.serving.conftest import BUNDLED
from vanilla_transformer import MaskPredictConfig, MaskPredictForConditionalGeneration, Translator
from vanilla_transformer.models.search_options import BeamSearchOptions
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.translation.confidence import CALIBRATION, Calibration, words_of


TEXTS = ["A man in a red shirt is sleeping.", "Two skateboarders jump.", "The bank lowered its interest rates.", ""]
SEARCH = BeamSearchOptions(num_beams=3, length_penalty=0.6)


@pytest.fixture(scope="module")
def torch_translations():
    translator = Translator.from_pretrained(BUNDLED, backend="torch")
    return list(translator.translate(TEXTS, n_best=2, confidence=True, **vars(SEARCH)))


def test_the_tokens_probabilities_multiply_to_the_translation_s(torch_translations):
    for ranked in torch_translations[:-1]:
        for hypothesis in ranked:
            number = len(hypothesis.tokens)
            assert len(hypothesis.log_probabilities) == number
            score = SEARCH.score(math.fsum(hypothesis.log_probabilities), number)
            assert score == pytest.approx(hypothesis.score, abs=1e-4)


def test_the_words_have_the_probabilities_of_their_tokens(torch_translations):
    for hypothesis in torch_translations[0]:
        assert [word.text for word in hypothesis.words][-2:] == ["schläft", "."]
        words = math.fsum(word.log_probability for word in hypothesis.words)
        assert words == pytest.approx(math.fsum(hypothesis.log_probabilities[:-1]))  # without the end of sentence
    tokens, spelled = ["Ü", "ber", "30", ".", "</s>"], "Über 30."
    words = words_of(spelled, tokens, [-0.5, -0.25, -1.0, 0.0, -3.0], None)
    assert [(word.text, word.log_probability) for word in words] == [("Über", -0.75), ("30", -1.0), (".", 0.0)]
    assert [word.confidence for word in words] == [math.exp(-0.75), math.exp(-1.0), 1.0]
    chinese = words_of("我喜欢dog。", ["我", "喜欢", "dog", "。"], [0.0] * 4, None)
    assert [word.text for word in chinese] == ["我", "喜", "欢", "dog", "。"]


def test_captions_are_surer_than_banks_and_nothing_is_certain_of_an_empty_text(torch_translations):
    caption, _, bank, empty = (ranked[0].confidence for ranked in torch_translations)
    assert 0 < bank < caption < 1
    assert empty == 1
    assert next(Translator.from_pretrained(BUNDLED).translate(["A dog."]))[0].confidence is None


@pytest.mark.parametrize("backend", ["ctranslate2", "ensemble"])
def test_every_engine_is_as_sure_as_torch(backend, torch_translations):
    pytest.importorskip({"ensemble": "torch"}.get(backend, backend))
    if backend == "ensemble":
        translator = Translator.from_pretrained([BUNDLED, BUNDLED])
    else:
        translator = Translator.from_pretrained(BUNDLED, backend=backend)
    found = translator.translate(TEXTS, n_best=2, confidence=True, **vars(SEARCH))
    for ours, theirs in zip(torch_translations, found, strict=True):
        for expected, hypothesis in zip(ours, theirs, strict=True):
            assert hypothesis.text == expected.text
            assert hypothesis.log_probabilities == pytest.approx(expected.log_probabilities, abs=1e-3)
            assert hypothesis.confidence == pytest.approx(expected.confidence, abs=1e-3)


def test_a_text_in_sentences_has_the_words_of_all():
    translator = Translator.from_pretrained(BUNDLED)
    (whole,) = next(translator.translate([" ".join(TEXTS[:2])], split_sentences=True, confidence=True))
    parts = [best for (best,) in translator.translate(TEXTS[:2], confidence=True)]
    assert [word.text for word in whole.words] == [word.text for part in parts for word in part.words]
    assert len(whole.log_probabilities) == len(whole.tokens) == sum(len(part.tokens) for part in parts)


def test_a_calibration_is_stored_with_the_model_and_maps_probabilities(tmp_path):
    model = Translator.from_pretrained(BUNDLED, backend="torch")
    points = {"probabilities": [0.0, 1.0], "confidences": [0.25, 0.75]}
    setattr(model.model.generation_config, CALIBRATION, points)
    model.model.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text())[CALIBRATION] == points
    for backend in ("torch", "auto"):
        translator = Translator.from_pretrained(tmp_path, backend=backend)
        (best,) = next(translator.translate(TEXTS[:1], confidence=True))
        assert best.is_calibrated
        expected = [0.25 + math.exp(word.log_probability) / 2 for word in best.words]
        assert [word.confidence for word in best.words] == pytest.approx(expected)


@pytest.mark.parametrize("points", [([0.5, 0.1], [0.0, 1.0]), ([0.0], [0.0, 1.0]), ([], []), ([0.0], ["1"])], ids=str)
def test_a_broken_calibration_is_refused(points):
    with pytest.raises(ValueError, match="write it again with vanilla calibrate"):
        Calibration(*points)


def test_a_model_that_writes_all_tokens_at_once_is_refused():
    tokenizer = train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)
    sizes = {"vocab_size": 300, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "mask_token_id": 299}
    model = MaskPredictForConditionalGeneration(MaskPredictConfig(**sizes))
    with pytest.raises(ValueError, match="confidence=True needs a model that works from left to right"):
        Translator(model, tokenizer).translate(TEXTS, confidence=True)
