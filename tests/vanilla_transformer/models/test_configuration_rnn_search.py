"""The config of RNNsearch: every field is checked, and it survives a file."""

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from vanilla_transformer import RnnSearchConfig


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 0}, "hidden_size=0 must be greater than 0"),
        ({"dropout": 1.0}, "dropout=1.0 must be at least 0 and less than 1"),
        ({"tie_word_embeddings": True}, "set readout_size=500 to embedding_size=620"),
        ({"target_vocab_size": 9, "share_encoder_decoder_embeddings": True}, "target_vocab_size=9 makes a separate"),
        ({"share_encoder_decoder_embeddings": True}, "needs tie_word_embeddings=True"),
        ({"eos_token_id": 30000}, "eos_token_id=30000 is not in the vocabulary"),
        ({"attention": "dot"}, "attention"),
        ({"readout": "relu"}, "readout"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_by_name(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        RnnSearchConfig(**fields)


def test_a_misspelt_field_is_refused():
    with pytest.raises(
        ValueError, match=r"embeding_size=8 is not a field of RnnSearchConfig.*did you mean 'embedding_size'"
    ):
        RnnSearchConfig(embeding_size=8)


def test_a_config_survives_a_file(tmp_path):
    config = RnnSearchConfig(attention="none", hidden_size=12, readout="linear", target_vocab_size=50)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is RnnSearchConfig
    assert loaded.to_diff_dict() == config.to_diff_dict()
