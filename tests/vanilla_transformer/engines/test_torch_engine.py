"""The torch backend never changes its model: threads that share it get what one thread gets."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import wraps

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from tests.small_models import lively, small_marian
from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.engines import (
    BACKENDS,
    AutoBackend,
    CTranslate2Backend,
    TorchBackend,
    backend_named,
)
from vanilla_transformer.engines.torch_engine import longest_sequence
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.tokenization_vanilla_transformer import save_tokenizers, train_tokenizer


TEXTS = ["A dog runs.", "Two men are standing on a ladder.", "A cat", "the cat and the dog sleep under a tree"]
SIZES = {"vocab_size": 290, "d_model": 16, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
SHORT = {"max_extra_tokens": 2, "num_beams": 2}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)


def vanilla(**fields):
    torch.manual_seed(1)
    layers = {"encoder_layers": 2, "decoder_layers": 2, "initializer_gain": 1.0}
    config = VanillaTransformerConfig.from_preset("tiny", **{**SIZES, **layers, **fields})
    return lively(VanillaTransformerForConditionalGeneration(config))


def marian():
    torch.manual_seed(1)
    return lively(small_marian(vocab_size=290, max_position_embeddings=40))


def t5():
    torch.manual_seed(1)
    return lively(T5ForConditionalGeneration(T5Config(**SIZES, d_kv=4, d_ff=32, num_layers=2, num_heads=4)))


def test_the_backends_have_names_and_quantizations():
    classes = {"auto": AutoBackend, "torch": TorchBackend, "ctranslate2": CTranslate2Backend}
    assert classes == {name: backend_named(name) for name in BACKENDS}
    for name, backend in classes.items():
        assert backend.name == name
        assert "float32" in backend.quantizations
    with pytest.raises(ValueError, match="backend='marian' is unknown: choose one of auto, torch, ctranslate2"):
        backend_named("marian")


# --- threads ---


def results_of(translator: Translator, texts: list[str], **options) -> list[tuple]:
    """Everything in the hypotheses, in a form that can be compared exactly."""
    results = []
    for (hypothesis,) in translator.translate(texts, num_beams=2, max_new_tokens=4, **options):
        weights = (hypothesis.attention, hypothesis.decoder_attention, hypothesis.encoder_attention)
        exact = [None if tensor is None else tensor.numpy().tobytes() for tensor in weights]
        results.append((hypothesis.text, hypothesis.score, hypothesis.tokens, *exact))
    return results


@pytest.mark.parametrize(("make", "number"), [(vanilla, 200), (marian, 40), (t5, 40)])
def test_eight_threads_get_what_one_thread_gets(tokenizer, make, number):
    """Half of them ask for attention and half give a prefix; small batches make them take turns."""
    translator = Translator(make(), tokenizer, max_tokens=number * 3)
    texts = [f"{TEXTS[index % len(TEXTS)]} {index}" for index in range(number)]
    requests = [(attention, prefix) for attention in (True, False) for prefix in ("A", None)] * 2

    def translate(request: tuple[bool, str | None]) -> list[tuple]:
        attention, prefix = request
        return results_of(translator, texts, attention=attention, prefix=prefix)

    expected = {request: translate(request) for request in requests[:4]}
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(translate, requests))
    assert results == [expected[request] for request in requests]


# --- attention ---


@pytest.mark.parametrize("make", [vanilla, marian, t5])
def test_attention_leaves_the_model_as_it_is(tokenizer, make):
    model = make()
    before = model.config.to_dict(), model.config._attn_implementation
    translator = Translator(model, tokenizer)
    first = translator.attend(TEXTS[0], TEXTS[1])
    assert (model.config.to_dict(), model.config._attn_implementation) == before
    assert torch.equal(translator.attend(TEXTS[0], TEXTS[1]).attention, first.attention)


def test_attention_follows_weights_that_change_in_place_and_those_that_are_replaced(tokenizer):
    model = vanilla()
    backend = TorchBackend(model)
    ids = [tokenizer(TEXTS[0])["input_ids"]]
    first = backend.attend(ids, ids)[0].cross
    with torch.no_grad():
        model.model.encoder.embed_tokens.weight.mul_(0.5)
    second = backend.attend(ids, ids)[0].cross
    assert not torch.equal(second, first)
    model.resize_token_embeddings(300)
    with torch.no_grad():
        model.model.encoder.embed_tokens.weight.mul_(0.5)
    assert not torch.equal(backend.attend(ids, ids)[0].cross, second)


@pytest.mark.parametrize("backend", ["torch", "auto"])
def test_weights_in_8_bits_are_another_engines(tokenizer, backend):
    with pytest.raises(ValueError, match="quantization='int8' is for CTranslate2: set backend='ctranslate2'"):
        Translator(vanilla(), tokenizer, backend=backend, quantization="int8")


def test_a_translator_can_be_pickled_after_attention(tokenizer):
    translator = Translator(vanilla(), tokenizer)
    size = len(pickle.dumps(translator))
    expected = translator.attend(TEXTS[0], TEXTS[1])
    content = pickle.dumps(translator)
    assert len(content) < 1.1 * size
    assert torch.equal(pickle.loads(content).attend(TEXTS[0], TEXTS[1]).attention, expected.attention)


def test_a_model_on_several_devices_gives_attention(tokenizer, tmp_path):
    vanilla().save_pretrained(tmp_path)
    save_tokenizers(tmp_path, tokenizer)
    expected = Translator.from_pretrained(tmp_path, device="cpu").attend(TEXTS[0], TEXTS[1])
    layers = {f"model.encoder.layers.{number}": "disk" for number in range(2)}
    rest = dict.fromkeys(("model.encoder.embed_tokens", "model.encoder.norm", "model.decoder", "lm_head"), "cpu")
    translator = Translator.from_pretrained(
        tmp_path, device_map={**layers, **rest}, offload_folder=tmp_path / "offloaded"
    )
    assert torch.equal(translator.attend(TEXTS[0], TEXTS[1]).attention, expected.attention)


# --- search and limits ---


def test_the_search_is_the_one_that_the_model_class_names(tokenizer, monkeypatch):
    calls = []

    @wraps(beam_search.search)
    def search(model, *args, **kwargs):
        calls.append(type(model))
        return beam_search.search(model, *args, **kwargs)

    model = vanilla()
    expected = Translator(model, tokenizer)(TEXTS, **SHORT)
    assert not calls
    monkeypatch.setattr(VanillaTransformerForConditionalGeneration, "search", staticmethod(search))
    assert Translator(model, tokenizer)(TEXTS, **SHORT) == expected
    assert set(calls) == {VanillaTransformerForConditionalGeneration}


def test_how_long_a_sequence_can_be():
    assert longest_sequence(vanilla()) is None
    assert longest_sequence(vanilla(position_encoding="learned", max_position_embeddings=40)) == 40
    assert longest_sequence(marian()) == TorchBackend(marian()).longest_input == 40
    assert longest_sequence(t5()) is None
