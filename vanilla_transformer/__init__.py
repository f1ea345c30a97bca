"""The Transformer of "Attention Is All You Need" as a first-class Hugging Face model.

Importing this package registers it with transformers: `AutoConfig`, `AutoModel`, `AutoModelForSeq2SeqLM` and
`AutoModelForTextEncoding` load it without remote code, and `pipeline("vanilla-translation", model=...)` translates
with it. Names are imported when they are first used, so importing the package itself takes no time.

The way of a sentence: translation -> engines -> models.
The way of a pair: training/data -> trainer -> objectives -> models -> run_folder -> evaluation -> reports -> hub.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .hub import auto_classes as registration


if TYPE_CHECKING:
    from .hub.saved_files import find_model
    from .models import beam_search
    from .models import mask_predict_search as mask_predict
    from .models.configuration_mask_predict import MaskPredictConfig
    from .models.configuration_rnn_search import RnnSearchConfig
    from .models.configuration_vanilla_transformer import VanillaTransformerConfig
    from .models.modeling_mask_predict import (
        MaskPredictEncoderModel,
        MaskPredictForConditionalGeneration,
        MaskPredictModel,
    )
    from .models.modeling_rnn_search import RnnSearchForConditionalGeneration
    from .models.modeling_vanilla_transformer import (
        VanillaTransformerForConditionalGeneration,
        VanillaTransformerModel,
        VanillaTransformerPreTrainedModel,
    )
    from .models.presets import PRESETS
    from .models.searches import PAPER_DECODING
    from .models.text_encoder import VanillaTransformerEncoderModel
    from .translation.hf_pipeline import TranslationPipeline
    from .translation.translator import Hypothesis, Translator


__version__ = "0.2.0"

# Where each name is defined; those without a module of their own are modules.
_NAMES = {
    "PAPER_DECODING": "models.searches",
    "PRESETS": "models.presets",
    "Hypothesis": "translation.translator",
    "MaskPredictConfig": "models.configuration_mask_predict",
    "MaskPredictEncoderModel": "models.modeling_mask_predict",
    "MaskPredictForConditionalGeneration": "models.modeling_mask_predict",
    "MaskPredictModel": "models.modeling_mask_predict",
    "RnnSearchConfig": "models.configuration_rnn_search",
    "RnnSearchForConditionalGeneration": "models.modeling_rnn_search",
    "TranslationPipeline": "translation.hf_pipeline",
    "Translator": "translation.translator",
    "VanillaTransformerConfig": "models.configuration_vanilla_transformer",
    "VanillaTransformerEncoderModel": "models.text_encoder",
    "VanillaTransformerForConditionalGeneration": "models.modeling_vanilla_transformer",
    "VanillaTransformerModel": "models.modeling_vanilla_transformer",
    "VanillaTransformerPreTrainedModel": "models.modeling_vanilla_transformer",
    "find_model": "hub.saved_files",
}
_MODULES = {"beam_search": "models.beam_search", "mask_predict": "models.mask_predict_search"}

__all__ = [
    "PAPER_DECODING",
    "PRESETS",
    "Hypothesis",
    "MaskPredictConfig",
    "MaskPredictEncoderModel",
    "MaskPredictForConditionalGeneration",
    "MaskPredictModel",
    "RnnSearchConfig",
    "RnnSearchForConditionalGeneration",
    "TranslationPipeline",
    "Translator",
    "VanillaTransformerConfig",
    "VanillaTransformerEncoderModel",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "beam_search",
    "find_model",
    "mask_predict",
    "registration",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{_MODULES[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


registration.register()
