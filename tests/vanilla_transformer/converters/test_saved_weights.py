"""Weights and positions that are read without torch are those of the model."""

import numpy as np
import pytest
import torch

from tests.small_models import draw_weights
from vanilla_transformer.converters.saved_weights import ENCODINGS, TABLES, position_tables, read_weights
from vanilla_transformer.hub.saved_files import read_config
from vanilla_transformer.models.positions import AddedPositions
from vanilla_transformer.models.variants import POSITIONS, load


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tie_word_embeddings": False},
        {"target_vocab_size": 30},
        {"share_encoder_decoder_embeddings": False},
        {"norm_placement": "pre", "output_bias": True, "position_encoding": "learned"},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_all_weights(make_model, tmp_path, fields, dtype):
    model = draw_weights(make_model(**fields)).to(dtype)
    model.save_pretrained(tmp_path, max_shard_size="10KB" if fields else "1GB")
    weights = read_weights(tmp_path, read_config(tmp_path))
    assert weights.keys() == model.state_dict().keys()
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(weights[name], tensor.float().numpy())


@pytest.mark.parametrize("name", TABLES)
def test_position_tables(make_config, name):
    config = make_config(position_encoding=name, pad_token_id=1)
    encoding = load(POSITIONS[name])(config, config.encoder_attention_heads, False)
    expected = encoding(torch.arange(3000)).float().numpy()
    for table in position_tables(config, {}, 3000).values():
        np.testing.assert_allclose(table, expected, rtol=0, atol=1e-7)


def test_every_encoding_of_added_vectors_is_known():
    added = {name for name, choice in POSITIONS.items() if load(choice).encode is AddedPositions.encode}
    assert added == set(ENCODINGS)
