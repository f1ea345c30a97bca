"""The Transformer of "Attention Is All You Need" as a first-class Hugging Face model.

Importing this package registers it with transformers: `AutoConfig`, `AutoModel` and `AutoModelForSeq2SeqLM` load it
without remote code, and `pipeline("vanilla-translation", model=...)` translates with it. Names are imported when they
are first used, so importing the package itself takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import registration


if TYPE_CHECKING:
    from . import beam_search, mask_predict
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
    from .translation import Hypothesis, Translator
    from .translation_pipeline import TranslationPipeline


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

# Where the names above are defined; all others are modules.
_MODULES = {
    "configuration_mask_predict": ["MaskPredictConfig"],
    "configuration_rnn_search": ["RnnSearchConfig"],
    "configuration_vanilla_transformer": ["VanillaTransformerConfig"],
    "decoding_options": ["PAPER_DECODING"],
    "modeling_mask_predict": ["MaskPredictForConditionalGeneration", "MaskPredictModel"],
    "modeling_rnn_search": ["RnnSearchForConditionalGeneration"],
    "modeling_vanilla_transformer": [
        "VanillaTransformerForConditionalGeneration",
        "VanillaTransformerModel",
        "VanillaTransformerPreTrainedModel",
    ],
    "presets": ["PRESETS"],
    "translation": ["Hypothesis", "Translator"],
    "translation_pipeline": ["TranslationPipeline"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


registration.register()
