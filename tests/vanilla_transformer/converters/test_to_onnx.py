"""The graphs compute the logits of the model, and models that they can't represent are refused by name.

The graphs run in torch here, and in ONNX Runtime by the greedy search that docs/decoding.md shows.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests.small_models import lively
from vanilla_transformer import RnnSearchConfig, Translator
from vanilla_transformer.converters import to_onnx as onnx
from vanilla_transformer.converters.to_onnx import export, no_keys, require_exportable
from vanilla_transformer.models.tokenization_vanilla_transformer import save_tokenizers, train_tokenizer
from vanilla_transformer.scripts import export_onnx


GUIDE = Path(__file__).parents[3] / "docs" / "decoding.md"
TEXTS = ["A dog runs.", "Two men are standing on a ladder.", "the cat and the dog sleep under a tree", "A cat"]


@torch.no_grad()
def test_the_graphs_compute_the_logits_of_the_model_from_left_to_right(make_model, batch):
    model = make_model()
    ids, mask, tokens = batch["input_ids"], batch["attention_mask"].long(), torch.randint(3, 23, (3, 6))
    expected = model(input_ids=ids, attention_mask=mask, decoder_input_ids=tokens).logits
    source = list(onnx._source_keys(model, onnx._encode(model, ids, mask)))
    padding = torch.zeros(mask.shape).masked_fill(mask == 0, torch.finfo(torch.float32).min)[:, None, None]
    past = no_keys(model.config, 3)
    for step in range(6):
        visible = torch.zeros(3, 1, 1, step + 1)
        logits, *past = onnx._decode(
            model, tokens[:, step : step + 1], torch.tensor([step]), visible, padding, past, source
        )
        assert_close(logits[:, 0], expected[:, step], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"position_encoding": "rotary"}, "position_encoding='rotary' can't become ONNX graphs"),
        ({"position_encoding": "relative"}, "position_encoding='relative' can't become ONNX graphs"),
        ({"score_function": "additive"}, "score_function='additive' can't become ONNX graphs"),
        ({"attention_pattern": "window"}, "attention_pattern='window' can't become ONNX graphs"),
        ({"key_projection": "shared"}, "key_projection='shared' can't become ONNX graphs"),
    ],
)
def test_variants_are_refused_by_name(make_config, fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        require_exportable(make_config(**fields))


def test_other_models_types_and_weights_are_refused(make_model, tmp_path):
    with pytest.raises(ValueError, match="model_type='rnn_search' can't become ONNX graphs"):
        require_exportable(RnnSearchConfig())
    pytest.importorskip("onnxscript")
    with pytest.raises(ValueError, match=r"takes a model in float32 on the CPU, not torch.float64 on cpu"):
        export(make_model().double(), tmp_path)
    with pytest.raises(ValueError, match="quantization='int4' is unknown: choose one of float32, int8"):
        export(make_model(), tmp_path, quantization="int4")
    broken = make_model()
    broken.lm_head.weight.data[3, 3] = torch.nan
    with pytest.raises(ValueError, match="weights that are not numbers"):
        export(broken, tmp_path)
    assert not list(tmp_path.iterdir())


def save(make_model, folder, **fields) -> None:
    tokenizer = train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    lively(make_model(vocab_size=290, initializer_gain=1.0, **ids, **fields)).save_pretrained(folder)
    save_tokenizers(folder, tokenizer)


def search_of_the_guide(folder) -> dict:
    """What the example of the guide defines, with another folder."""
    (code,) = re.findall(r"```python\n(import json\n.*?onnxruntime.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    names: dict = {}
    exec(code.replace('"models/onnx"', repr(str(folder))), names)
    return names


@pytest.mark.parametrize(
    "fields",
    [
        {},
        pytest.param(
            {"norm_placement": "pre", "position_encoding": "learned", "d_k": 6, "output_bias": True},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"position_encoding": "none", "activation_function": "gelu", "tie_word_embeddings": False},
            marks=pytest.mark.slow,
        ),
    ],
)
@torch.no_grad()
def test_the_search_of_the_guide_has_the_logits_and_the_greedy_translations_of_torch(make_model, tmp_path, fields):
    for package in ("onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    save(make_model, tmp_path / "model", **fields)
    export_onnx.main(["--model", str(tmp_path / "model"), "--output_dir", str(tmp_path / "onnx")])
    onnx = search_of_the_guide(tmp_path / "onnx")
    translator = Translator.from_pretrained(tmp_path / "model", backend="torch")
    found = [onnx["translate"](text, longest=12) for text in TEXTS]
    assert found == translator(TEXTS, num_beams=1, max_new_tokens=12)
    assert len(set(found)) > 1

    ids, tokens = np.array([[5, 6, 7, 8, 2]]), np.array([[1, 9, 10, 11]])
    run, encoder, source, decoder = (onnx[name] for name in ("run", "encoder", "source", "decoder"))
    source_keys = run(source, *run(encoder, ids, np.ones_like(ids)))
    masks = np.triu(np.full((1, 1, 4, 4), -1e30, np.float32), 1), np.zeros((1, 1, 1, 5), np.float32)
    logits = run(decoder, tokens, np.arange(4), *masks, *[each[:, :, :0] for each in source_keys], *source_keys)[0]
    expected = translator.model(input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(tokens)).logits
    assert_close(torch.tensor(logits), expected, rtol=0, atol=1e-4)
