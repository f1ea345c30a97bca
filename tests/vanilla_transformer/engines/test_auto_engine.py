"""`auto` decodes in CTranslate2 what CTranslate2 decodes as torch does, and everything else in torch."""

import json
import pickle

import pytest
import torch

from tests.vanilla_transformer.engines.test_ctranslate2_engine import TEXTS, model_of
from vanilla_transformer import Translator
from vanilla_transformer.engines import auto_engine
from vanilla_transformer.engines.auto_engine import AutoBackend, why_torch
from vanilla_transformer.engines.torch_engine import TorchBackend
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer


pytest.importorskip("ctranslate2")

OPTIONS = {"max_new_tokens": 12}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)


@pytest.fixture
def saved(tokenizer, tmp_path):
    model_of().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def rows(translator, **options):
    return [[(each.text, each.score) for each in row] for row in translator.translate(TEXTS, **{**OPTIONS, **options})]


def assert_same(found, expected):
    assert [[text for text, _ in row] for row in found] == [[text for text, _ in row] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert [score for _, score in ours] == pytest.approx([score for _, score in theirs], abs=2e-4)


@pytest.mark.parametrize(
    ("options", "loads_torch"),
    [
        ({}, False),
        ({"n_best": 3, "prefix": "the"}, False),
        ({"length_penalty": 1.6}, False),
        ({"num_beams": 1, "length_penalty": 2.0}, False),
        ({"length_penalty": 2.0}, False),
        ({"length_penalty": 2.5}, True),
        ({"penalty": "length"}, True),
        ({"max_new_tokens": 3, "num_beams": 8}, False),
        ({"min_new_tokens": 5}, True),
        ({"repetition_penalty": 1.5}, True),
        ({"early_stopping": True}, True),
        ({"glossary": {"dog": "cat"}}, True),
        ({"sample": True, "top_k": 1}, True),
    ],
    ids=str,
)
def test_every_call_gives_what_torch_gives(saved, options, loads_torch):
    translator = Translator.from_pretrained(saved, device="cpu")
    found, expected = rows(translator, **options), rows(Translator.from_pretrained(saved, backend="torch"), **options)
    if options.get("sample"):
        assert [[text for text, _ in row] for row in found] == [[text for text, _ in row] for row in expected]
    else:
        assert_same(found, expected)
    assert (translator.backend._in_torch is not None) == loads_torch
    copy = rows(pickle.loads(pickle.dumps(translator)), **options)
    assert [[text for text, _ in row] for row in copy] == [[text for text, _ in row] for row in found]


def test_attention_of_every_head_is_torchs(saved):
    translator, there = Translator.from_pretrained(saved), Translator.from_pretrained(saved, backend="torch")
    torch.testing.assert_close(translator.attend("A dog", "A cat").attention, there.attend("A dog", "A cat").attention)
    assert translator.backend.fast.attend([[5, 2]], [[1, 6]])[0].encoder is None
    (found,) = next(translator.translate(["A dog"], attention=True, **OPTIONS))
    assert found.decoder_attention is not None


def test_texts_beyond_the_engines_positions_are_torchs(tokenizer, tmp_path):
    model_of(max_position_embeddings=16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    text = "a dog and a cat " * 5
    expected = Translator.from_pretrained(tmp_path, backend="torch")(text, max_new_tokens=20)
    assert Translator.from_pretrained(tmp_path)(text, max_new_tokens=20) == expected


def test_a_model_in_memory_stays_in_torch(tokenizer):
    assert isinstance(Translator(model_of(), tokenizer).backend, TorchBackend)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config.json": {"position_encoding": "rotary"}}, "a model of type 'vanilla_transformer' with its positions"),
        ({"config.json": {"dtype": "bfloat16"}}, "dtype='bfloat16' of its config"),
        ({"config.json": {"key_projection": "shared"}}, "key_projection='shared' can't become a CTranslate2 model"),
        ({"config.json": {"model_type": "marian"}}, "a model of type 'marian'"),
        ({"generation_config.json": {"repetition_penalty": 1.3}}, "repetition_penalty=1.3 of its generation_config"),
        ({"generation_config.json": {"early_stopping": True}}, "early_stopping=True of its generation_config"),
        ({"tokenizer_config.json": {"tokenizer_class": "MarianTokenizer"}}, "need transformers"),
    ],
    ids=str,
)
def test_a_model_that_it_would_decode_otherwise_is_torchs(saved, change, reason):
    assert why_torch(saved, "cpu") is None
    for name, fields in change.items():
        content = json.loads((saved / name).read_text())
        (saved / name).write_text(json.dumps({**content, **fields}))
    assert reason in str(why_torch(saved, "cpu"))


def test_options_about_torch_mean_torch(saved, monkeypatch):
    assert why_torch(saved, "cpu", dtype="float16") == "dtype is for torch"
    assert why_torch(saved, "cuda:1") == "device='cuda:1'"
    monkeypatch.setattr(auto_engine, "has_accelerator", lambda: True)
    assert why_torch(saved) == "there is a GPU"
    monkeypatch.setattr(auto_engine, "find_spec", lambda name: None)
    assert why_torch(saved) == "CTranslate2 is not installed"
    assert isinstance(Translator.from_pretrained(saved).backend, TorchBackend)


def test_the_choice_and_its_reason_are_logged(saved, caplog):
    translator = Translator.from_pretrained(saved, device="cpu", verbose=True)
    assert isinstance(translator.backend, AutoBackend)
    assert caplog.messages == [f"{saved}: CTranslate2 decodes as torch does"]
    translator(TEXTS, penalty="length", **OPTIONS)
    assert "torch decodes: penalty='length'" in caplog.messages
