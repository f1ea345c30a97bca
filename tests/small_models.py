"""Small models of transformers with random weights, as oracles and as models of another type."""

import torch
from transformers import MarianConfig, MarianMTModel

from tests.conftest import SMALL


# OPUS-MT's habits: padding is the last token and starts the decoder, 0 ends a sentence, SiLU, scaled embeddings.
OPUS = {
    **SMALL,
    "max_position_embeddings": 40,
    "pad_token_id": 22,
    "decoder_start_token_id": 22,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "activation_function": "swish",
    "scale_embedding": True,
}
TOKENIZER_FILES = {
    "source.spm": b"\x0a\x0e\x0a\x05<unk>\x00",
    "target.spm": bytes(range(256)),
    "vocab.json": '{"</s>": 0, "\u2581é": 1}\n'.encode(),
    "tokenizer_config.json": b'{"source_lang": "en", "target_lang": "de"}',
}


def small_marian(**fields) -> MarianMTModel:
    """A MarianMT with this package's special tokens; keywords override fields of its config."""
    ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    return MarianMTModel(MarianConfig(**{**SMALL, **ids, **fields})).eval()


def opus_marian(bias: bool = True, **fields) -> MarianMTModel:
    """A MarianMT with OPUS-MT's habits and drawn weights; keywords override fields of its config."""
    model = draw_weights(MarianMTModel(MarianConfig(**{**OPUS, **fields})))
    if not bias:
        model.final_logits_bias.zero_()
    model.generation_config.update(max_length=20, num_beams=3, bad_words_ids=[[OPUS["pad_token_id"]]])
    return model


def write_opus_folder(folder):
    """Writes a MarianMT with files of a tokenizer, and returns the folder."""
    opus_marian().save_pretrained(folder)
    for name, content in TOKENIZER_FILES.items():
        (folder / name).write_bytes(content)
    return folder


def draw_weights(model):
    """Biases and norms must not hide behind zeros and ones; MarianMT's positions are no weights."""
    for name, tensor in model.state_dict().items():
        if "embed_positions" not in name:
            tensor.normal_(mean=float("norm.weight" in name), std=0.3)
    return model.eval()


def lively(model):
    """Larger weights, so that texts have different translations."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model.eval()


def assert_same_weights(model, other) -> None:
    state, expected = model.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    for name, tensor in state.items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor, expected[name]), name
