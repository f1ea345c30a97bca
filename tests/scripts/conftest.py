"""A model with its tokenizer in a folder, as training leaves it."""

import pytest
import torch

from vanilla_transformer import (
    MaskPredictConfig,
    MaskPredictForConditionalGeneration,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.hub.loading import load_tokenizers
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer, with_mask_token


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    texts = ["The cat sleeps.", "A dog runs in the garden.", "Ein Hund läuft im Garten."]
    tokenizer = train_tokenizer(texts, vocab_size=300, min_frequency=1, show_progress=False)
    torch.manual_seed(3)
    config = VanillaTransformerConfig.from_preset(
        "tiny",
        vocab_size=len(tokenizer),
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        source_lang="en",
        target_lang="de",
    )
    model = VanillaTransformerForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # so that texts have different translations
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def mask_model_folder(model_folder, tmp_path_factory):
    """A mask-predict model with the same tokenizer and `<mask>`."""
    folder = tmp_path_factory.mktemp("mask_model")
    tokenizer = with_mask_token(load_tokenizers(model_folder)[0])
    torch.manual_seed(3)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "max_length_difference": 4}
    vocabulary = {"vocab_size": len(tokenizer), "mask_token_id": tokenizer.mask_token_id}
    model = MaskPredictForConditionalGeneration(MaskPredictConfig.from_preset("tiny", **sizes, **vocabulary))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
