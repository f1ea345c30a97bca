"""The Transformer of "Attention Is All You Need" as a first-class Hugging Face model.

Importing this package registers it with transformers: `AutoConfig`, `AutoModel` and `AutoModelForSeq2SeqLM` load it
without remote code, and `pipeline("vanilla-translation", model=...)` translates with it.
"""

from . import beam_search, mask_predict, registration
from .configuration_mask_predict import MaskPredictConfig
from .configuration_rnn_search import RnnSearchConfig
from .configuration_vanilla_transformer import VanillaTransformerConfig
from .decoding_options import PAPER_DECODING
from .modeling_mask_predict import MaskPredictForConditionalGeneration, MaskPredictModel
from .modeling_rnn_search import RnnSearchForConditionalGeneration
from .modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)
from .presets import PRESETS
from .translation import Hypothesis, TranslationPipeline, Translator


__version__ = "0.1.0"

__all__ = [
    "PAPER_DECODING",
    "PRESETS",
    "Hypothesis",
    "MaskPredictConfig",
    "MaskPredictForConditionalGeneration",
    "MaskPredictModel",
    "RnnSearchConfig",
    "RnnSearchForConditionalGeneration",
    "TranslationPipeline",
    "Translator",
    "VanillaTransformerConfig",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "beam_search",
    "mask_predict",
    "registration",
]
