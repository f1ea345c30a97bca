"""The graphs compute the logits of the model, and models that they can't represent are refused by name.

The graphs run in torch here. `tests/vanilla_transformer/engines/test_onnx_engine.py` runs them in ONNX Runtime.
"""

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer import RnnSearchConfig
from vanilla_transformer.converters import to_onnx as onnx
from vanilla_transformer.converters.to_onnx import digest_of, export, no_keys, require_exportable


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


def test_a_digest_is_the_one_of_other_programs(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    assert digest_of(tmp_path / "file") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
