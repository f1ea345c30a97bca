"""The Transformer of "Attention Is All You Need" as a first-class Hugging Face model.

Importing this package registers it with transformers: `AutoConfig`, `AutoModel` and `AutoModelForSeq2SeqLM` load it
without remote code, and `pipeline("vanilla-translation", model=...)` translates with it.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM
from transformers.pipelines import PIPELINE_REGISTRY

from .beam_search import PAPER_DECODING, beam_search
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)
from .presets import PRESETS
from .translation import Hypothesis, TranslationPipeline, Translator


__version__ = "0.1.0"

AutoConfig.register("vanilla_transformer", VanillaTransformerConfig)
AutoModel.register(VanillaTransformerConfig, VanillaTransformerModel)
AutoModelForSeq2SeqLM.register(VanillaTransformerConfig, VanillaTransformerForConditionalGeneration)
PIPELINE_REGISTRY.register_pipeline(
    "vanilla-translation", pipeline_class=TranslationPipeline, pt_model=AutoModelForSeq2SeqLM, type="text"
)

__all__ = [
    "PAPER_DECODING",
    "PRESETS",
    "Hypothesis",
    "TranslationPipeline",
    "Translator",
    "VanillaTransformerConfig",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "beam_search",
]
