"""A `Translator` that decodes in CTranslate2 answers as the one in torch does, and says what the engine lacks."""

import os
import pickle
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from vanilla_transformer import (
    RnnSearchConfig,
    RnnSearchForConditionalGeneration,
    Translator,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.converters.from_and_to_marian import to_marian
from vanilla_transformer.engines import ctranslate2_engine
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer


ctranslate2 = pytest.importorskip("ctranslate2")

TEXTS = ["A dog runs.", "Two men are standing on a ladder.", "A cat", "the cat and the dog sleep under a tree", ""] * 2
ALIKE = {"max_new_tokens": 12}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)


def model_of(**fields) -> VanillaTransformerForConditionalGeneration:
    torch.manual_seed(2)
    sizes = {"vocab_size": 300, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "initializer_gain": 1.0}
    model = VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset("tiny", **{**sizes, **fields})
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # livelier than fresh weights
    return model.eval()


@pytest.fixture(scope="module")
def translators(tokenizer):
    model = model_of()
    return Translator(model, tokenizer), Translator(model, tokenizer, backend="ctranslate2")


@pytest.fixture
def saved(tokenizer, tmp_path):
    model_of().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_best": 3},
        {"n_best": 4, "length_penalty": 1.0, "penalty": "length"},
        {"length_penalty": 0.0, "num_beams": 3},
        {"length_penalty": 2.0},
        {"length_penalty": 5.0, "n_best": 4},
        {"early_stopping": True},
        {"early_stopping": True, "length_penalty": 2.0},
        {"num_beams": 1},
        {"prefix": "the dog"},
        {"min_new_tokens": 6},
    ],
    ids=str,
)
def test_the_same_translations_and_scores(translators, options):
    expected, found = (list(each.translate(TEXTS, **ALIKE, **options)) for each in translators)
    assert [[each.text for each in row] for row in found] == [[each.text for each in row] for row in expected]
    for ours, theirs in zip(expected, found, strict=True):
        assert [each.score for each in theirs] == pytest.approx([each.score for each in ours], abs=2e-4)


def test_each_text_has_its_own_limit(translators):
    """Those of the batch are not the same: three tokens and many."""
    options = {"max_extra_tokens": 1}
    expected, found = (list(each.translate(TEXTS, **options)) for each in translators)
    assert [row[0].text for row in found] == [row[0].text for row in expected]
    assert [row[0].score for row in found] == pytest.approx([row[0].score for row in expected], abs=2e-4)
    assert len({len(row[0].text) for row in found}) > 2


def test_the_least_length_is_that_of_what_follows_the_prefix(tokenizer):
    model = model_of(output_bias=True)
    with torch.no_grad():
        model.lm_head.bias[model.config.eos_token_id] += 60  # it would rather say nothing
    options = {"prefix": "the cat and the dog", "min_new_tokens": 5, "num_beams": 1, "max_new_tokens": 9}
    expected = Translator(model, tokenizer)(TEXTS, **options)
    assert Translator(model, tokenizer, backend="ctranslate2")(TEXTS, **options) == expected
    assert all(len(text) > len(options["prefix"]) for text in expected if text)


@pytest.mark.parametrize("kind", ["shared", "two vocabularies", "marian"])
def test_given_translations_have_the_same_probability(tokenizer, kind):
    target = train_tokenizer(["ein Hund läuft", "zwei Katzen"], vocab_size=270, min_frequency=1, show_progress=False)
    model, tokenizers = model_of(), [tokenizer]
    if kind == "marian":
        model = to_marian(model_of(position_encoding="sinusoidal_halves"))
    elif kind == "two vocabularies":
        model, tokenizers = model_of(target_vocab_size=280), [tokenizer, target]
    pairs = [(text, other) for text in TEXTS for other in ("zwei Hunde", "ein Hund läuft", "")]
    expected = list(Translator(model, *tokenizers).score(pairs))
    found = list(Translator(model, *tokenizers, backend="ctranslate2").score(pairs))
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.log_probability for each in found] == pytest.approx(
        [each.log_probability for each in expected], abs=1e-3
    )


def test_two_vocabularies(tokenizer):
    target = train_tokenizer(["ein Hund läuft", "zwei Katzen"], vocab_size=270, min_frequency=1, show_progress=False)
    model = model_of(target_vocab_size=280)
    expected = Translator(model, tokenizer, target)(TEXTS, **ALIKE)
    assert Translator(model, tokenizer, target, backend="ctranslate2")(TEXTS, **ALIKE) == expected


def test_marian_decodes_there_too(tokenizer):
    marian = to_marian(model_of(position_encoding="sinusoidal_halves"))
    expected = Translator(marian, tokenizer)(TEXTS, **ALIKE)
    assert Translator(marian, tokenizer, backend="ctranslate2")(TEXTS, **ALIKE) == expected


def test_samples(translators):
    _, there = translators
    likeliest = there(TEXTS, num_beams=1, **ALIKE)
    assert there(TEXTS, sample=True, top_k=1, max_new_tokens=12) == likeliest
    drawn = list(there.translate(TEXTS, sample=True, temperature=2.0, top_k=0, n_best=3, max_new_tokens=12))
    assert [[each.text for each in row] for row in drawn] != [[text] * 3 for text in likeliest]
    assert all(each.score is None for row in drawn for each in row)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_work_apart_translate_as_one(tokenizer, monkeypatch, threads):
    texts = [f"{text} {number}" for number in range(3) for text in TEXTS]
    pairs = list(zip(texts, reversed(texts), strict=True))

    def translations():
        translator = Translator(model_of(), tokenizer, backend="ctranslate2")
        found = [
            [(each.text, each.score) for each in row]
            for size in (1, 3, 4, 7, len(texts))
            for row in translator.translate(texts[:size], n_best=2, **ALIKE)
        ]
        return translator.backend, found, [each.log_probability for each in translator.score(pairs)]

    monkeypatch.setattr(ctranslate2_engine, "number_of_threads", lambda: 1)
    alone, expected, scores = translations()
    monkeypatch.setattr(ctranslate2_engine, "number_of_threads", lambda: threads)
    several, found, scores_apart = translations()
    assert found == [[(text, pytest.approx(score, abs=1e-3)) for text, score in row] for row in expected]
    assert scores_apart == pytest.approx(scores, abs=1e-3)
    assert set(alone._engines) == {False}
    assert several._engines[True].num_translators == threads
    assert several._engines[False].num_translators == 1


# --- other processes ---


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_opens_an_engine_of_its_own(translators, saved):
    _, in_memory = translators
    for translator in (in_memory, Translator.from_pretrained(saved, backend="ctranslate2")):
        expected = translator(TEXTS[:4], **ALIKE)  # the engine's threads are in use
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # it used to hang
            os._exit(0 if translator(TEXTS[:4], **ALIKE) == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert translator(TEXTS[:4], **ALIKE) == expected


def test_it_can_be_pickled(translators, saved):
    _, in_memory = translators
    from_folder = Translator.from_pretrained(saved, backend="ctranslate2")
    pickled = [pickle.dumps(translator) for translator in (in_memory, from_folder)]
    shutil.rmtree(saved)  # all is in the pickle
    for translator, content in zip((in_memory, from_folder), pickled, strict=True):
        expected = translator(TEXTS[:4], **ALIKE)
        copy = pickle.loads(content)
        assert copy(TEXTS[:4], **ALIKE) == expected
        assert pickle.loads(pickle.dumps(copy))(TEXTS[:4], **ALIKE) == expected


# --- what the engine lacks ---


def test_its_attention_is_the_mean_of_the_heads_of_the_last_layer_but_one(translators):
    here, there = translators
    for source, target in ((TEXTS[1], "the dog and a cat"), (TEXTS[0], "A"), (TEXTS[2], "")):
        expected, hypothesis = here.attend(source, target), there.attend(source, target)
        assert (hypothesis.tokens, hypothesis.source_tokens) == (expected.tokens, expected.source_tokens)
        attention = torch.from_numpy(hypothesis.attention[0, 0])
        torch.testing.assert_close(attention, expected.attention[-2].mean(0), rtol=1e-4, atol=1e-5)
        assert hypothesis.alignment == expected.alignment


def test_options_it_lacks_are_named(translators):
    _, there = translators
    with pytest.raises(ValueError, match=r"CTranslate2 lacks the option repetition_penalty: leave it out, or"):
        there.translate(TEXTS, repetition_penalty=1.2)  # before anything is asked for
    with pytest.raises(ValueError, match=r"early_stopping='never': CTranslate2 has True and False"):
        there(TEXTS, early_stopping="never")
    with pytest.raises(ValueError, match=r"penalty='other' must be one of gnmt, length"):
        there(TEXTS, penalty="other")
    with pytest.raises(ValueError, match=r"CTranslate2 does not support attention=True"):
        list(there.translate(TEXTS, attention=True))


def test_models_and_arguments_it_can_not_take_are_named(tokenizer, saved):
    t5 = T5ForConditionalGeneration(T5Config(vocab_size=300, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=4))
    rnn = RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=300, hidden_size=8, attention_size=8))
    for model, model_type in ((t5, "t5"), (rnn, "rnn_search")):
        with pytest.raises(
            ValueError, match=rf"takes models of type vanilla_transformer and marian, not '{model_type}'"
        ):
            Translator(model, tokenizer, backend="ctranslate2")
    with pytest.raises(ValueError, match=r"backend='marian' is unknown: choose one of auto, torch, ctranslate2"):
        Translator(model_of(), tokenizer, backend="marian")
    with pytest.raises(ValueError, match=r"quantization='int4' is unknown"):
        Translator(model_of(), tokenizer, backend="ctranslate2", quantization="int4")
    with pytest.raises(ValueError, match=r"quantization='../x' is unknown"):
        Translator.from_pretrained(saved, backend="ctranslate2", quantization="../x")
    with pytest.raises(ValueError, match=r"dtype='float16': CTranslate2 calls it quantization"):
        Translator.from_pretrained(saved, backend="ctranslate2", dtype="float16")
    with pytest.raises(ValueError, match=r"torch_dtype='float16': CTranslate2 calls"):
        Translator.from_pretrained(saved, backend="ctranslate2", torch_dtype="float16")


def test_long_texts_are_cut_where_its_positions_end(tokenizer, caplog):
    model = model_of(max_position_embeddings=16)
    translator = Translator(model, tokenizer, backend="ctranslate2")
    assert len(translator(["a dog " * 40])) == 1
    assert "CTranslate2 reads 16: the rest is cut off" in caplog.text
    with pytest.raises(ValueError, match=r"CTranslate2 has 16 positions for this model, too few for 0 tokens of a"):
        translator(["a dog"], max_new_tokens=40)


def test_settings_of_the_model_that_have_no_effect_are_named(tokenizer, caplog):
    model = model_of()
    Translator(model, tokenizer, backend="ctranslate2")
    assert not caplog.text
    model.generation_config.repetition_penalty = 1.3
    model.generation_config.bad_words_ids = [[20, 30]]
    Translator(model, tokenizer, backend="ctranslate2")
    assert "sets: repetition_penalty, bad_words_ids of several tokens. Leave out backend" in caplog.text


def test_eight_threads_get_what_one_thread_gets(tokenizer):
    translator = Translator(model_of(), tokenizer, backend="ctranslate2", max_tokens=600)
    texts = [f"{TEXTS[index % 4]} {index}" for index in range(200)]

    def translate(prefix: str | None) -> list[tuple[str, float | None]]:
        results = translator.translate(texts, prefix=prefix, num_beams=2, max_new_tokens=4)
        return [(hypothesis.text, hypothesis.score) for (hypothesis,) in results]

    prefixes = ["A", None] * 4
    expected = {prefix: translate(prefix) for prefix in prefixes[:2]}
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(translate, prefixes))
    assert results == [expected[prefix] for prefix in prefixes]
