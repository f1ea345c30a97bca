"""Save and load: every logit kept, one copy of what is tied, nothing lost on the way through the meta device."""

import pytest
import torch
from safetensors import safe_open
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer import VanillaTransformerForConditionalGeneration, VanillaTransformerModel
from vanilla_transformer.models.variants import POSITIONS


VARIANTS = [
    *({"position_encoding": name} for name in POSITIONS),
    {"norm_placement": "pre"},
    {"share_encoder_decoder_embeddings": False},
    {"target_vocab_size": 31},
    {"tie_word_embeddings": False},
    {"d_k": 3, "d_v": 5},
]


def saved_names(folder) -> set[str]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return set(file.keys())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_loading_keeps_every_logit(make_model, batch, tmp_path, fields, dtype):
    model = make_model(**fields).to(dtype)
    expected = model(**batch).logits
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert type(loaded) is VanillaTransformerForConditionalGeneration
    assert loaded.dtype == dtype
    assert_close(loaded(**batch).logits, expected, rtol=0, atol=0)
    assert len({id(parameter) for parameter in loaded.parameters()}) == len(list(model.parameters()))


def test_the_tied_matrix_is_written_once(make_model, tmp_path):
    copies = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"}
    for fields, expected in [
        ({}, {"model.encoder.embed_tokens.weight"}),
        ({"target_vocab_size": 31}, {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}),
        ({"tie_word_embeddings": False}, copies),
    ]:
        make_model(**fields).save_pretrained(tmp_path)
        assert saved_names(tmp_path) & copies == expected


def test_sinusoids_are_not_written(make_model, tmp_path):
    make_model().save_pretrained(tmp_path)
    assert not [name for name in saved_names(tmp_path) if "position" in name]


@pytest.mark.parametrize("fields", VARIANTS)
@torch.no_grad()
def test_a_model_made_on_the_meta_device_and_filled_is_whole(make_model, batch, fields):
    model = make_model(**fields)
    with torch.device("meta"):
        empty = VanillaTransformerForConditionalGeneration(model.config).eval()
    assert all(tensor.is_meta for tensor in (*empty.parameters(), *empty.buffers()))
    empty.load_state_dict(model.state_dict(), assign=True)
    empty.tie_weights()
    assert_close(empty(**batch).logits, model(**batch).logits, rtol=0, atol=0)


@torch.no_grad()
def test_the_bare_model_and_the_translation_model_load_each_other(make_model, batch, tmp_path):
    model = make_model()
    inputs = {"input_ids": batch["input_ids"], "decoder_input_ids": batch["input_ids"]}
    model.save_pretrained(tmp_path / "whole")
    bare = VanillaTransformerModel.from_pretrained(tmp_path / "whole")
    assert_close(bare(**inputs).last_hidden_state, model.model(**inputs).last_hidden_state, rtol=0, atol=0)
    bare.save_pretrained(tmp_path / "bare")
    again = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "bare")
    assert_close(again(**inputs).logits, model(**inputs).logits, rtol=0, atol=0)


@pytest.mark.parametrize("fields", [{}, {"share_encoder_decoder_embeddings": False}, {"tie_word_embeddings": False}])
@torch.no_grad()
def test_a_resized_model_saves_and_loads(make_model, batch, tmp_path, fields):
    model = make_model(**fields)
    model.resize_token_embeddings(40)
    model.save_pretrained(tmp_path)
    loaded = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path)
    assert loaded.config.vocab_size == 40
    assert_close(loaded(**batch).logits, model(**batch).logits, rtol=0, atol=0)


@torch.no_grad()
def test_a_device_map_places_the_parts(make_model, batch, tmp_path):
    model = make_model(share_encoder_decoder_embeddings=False)
    model.save_pretrained(tmp_path / "model")
    whole = VanillaTransformerForConditionalGeneration.from_pretrained(tmp_path / "model", device_map="cpu")
    assert_close(whole(**batch).logits, model(**batch).logits, rtol=0, atol=0)
    parts = {"model.encoder": "disk", "model.decoder": "cpu", "lm_head": "cpu"}
    offloaded = VanillaTransformerForConditionalGeneration.from_pretrained(
        tmp_path / "model", device_map=parts, offload_folder=tmp_path / "offload"
    )
    assert offloaded.model.encoder.layers[0].feed_forward.fc1.weight.is_meta
    assert_close(offloaded(**batch).logits, model(**batch).logits, rtol=0, atol=0)
