"""Small models for every test: a fresh one takes milliseconds."""

import os
import tempfile


# Set before the libraries are imported: no test may reach for the network or leave anything in a user's cache.
os.environ["HF_HUB_OFFLINE"] = "1"
_cache = tempfile.TemporaryDirectory()
os.environ["HF_HOME"] = _cache.name
os.environ["TQDM_DELAY"] = "2"  # as in the command `vanilla`
# CTranslate2 uses other integer kernels on CPUs that are not Intel's, and those are less exact.
os.environ.setdefault("CT2_USE_MKL", "1")

import pytest  # noqa: E402
import torch  # noqa: E402

from vanilla_transformer import (  # noqa: E402
    MaskPredictConfig,
    MaskPredictForConditionalGeneration,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)


SMALL = {
    "vocab_size": 23,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
}


MASKS = {"mask_token_id": 22, "max_length_difference": 6}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def make_config():
    """Builds a small config; keywords override its fields."""
    return lambda **fields: VanillaTransformerConfig(**{**SMALL, **fields})


@pytest.fixture
def make_model(make_config):
    """Builds a small model in evaluation mode; keywords override its config's fields."""
    return lambda **fields: VanillaTransformerForConditionalGeneration(make_config(**fields)).eval()


@pytest.fixture
def make_mask_model():
    """Builds a small mask-predict model whose sentences have different translations; the last token is `<mask>`."""

    def make(**fields) -> MaskPredictForConditionalGeneration:
        model = MaskPredictForConditionalGeneration(
            MaskPredictConfig(**{**SMALL, **MASKS, "initializer": "glorot", **fields})
        ).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.mul_(8.0 if "length" in name else 2.0)
        return model

    return make


@pytest.fixture
def batch():
    """Three sentence pairs of different lengths on both sides, padded on the right."""
    source_lengths, target_lengths = [7, 4, 2], [3, 6, 5]
    input_ids, labels = torch.randint(3, 23, (3, 7)), torch.randint(3, 23, (3, 6))
    attention_mask = torch.arange(7) < torch.tensor(source_lengths)[:, None]
    label_mask = torch.arange(6) < torch.tensor(target_lengths)[:, None]
    return {
        "input_ids": input_ids.masked_fill(~attention_mask, 0),
        "attention_mask": attention_mask.long(),
        "labels": labels.masked_fill(~label_mask, -100),
    }
