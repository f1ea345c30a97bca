"""The Transformer of "Attention Is All You Need" as a first-class Hugging Face model.

Importing this package registers it with the auto classes of transformers, so that `AutoConfig`, `AutoModel` and
`AutoModelForSeq2SeqLM` load it without remote code.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from .configuration_vanilla_transformer import VanillaTransformerConfig
from .modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)
from .presets import PRESETS


__version__ = "0.1.0"

AutoConfig.register("vanilla_transformer", VanillaTransformerConfig)
AutoModel.register(VanillaTransformerConfig, VanillaTransformerModel)
AutoModelForSeq2SeqLM.register(VanillaTransformerConfig, VanillaTransformerForConditionalGeneration)

__all__ = [
    "PRESETS",
    "VanillaTransformerConfig",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
]
