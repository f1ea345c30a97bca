"""A model with its tokenizer in a folder, as training leaves it."""

import pytest
import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer


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
