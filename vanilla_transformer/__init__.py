"""The Transformer of "Attention Is All You Need" as a first-class Hugging Face model.

Importing this package registers it with transformers: `AutoConfig`, `AutoModel` and `AutoModelForSeq2SeqLM` load it
without remote code, and `pipeline("vanilla-translation", model=...)` translates with it. Names are imported when they
are first used, so importing the package itself takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import registration


if TYPE_CHECKING:
    from . import beam_search
    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .decoding_options import PAPER_DECODING
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
    "TranslationPipeline",
    "Translator",
    "VanillaTransformerConfig",
    "VanillaTransformerForConditionalGeneration",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "beam_search",
    "registration",
]

# Where the names above are defined.
_MODULES = {
    "configuration_vanilla_transformer": ["VanillaTransformerConfig"],
    "decoding_options": ["PAPER_DECODING"],
    "modeling_vanilla_transformer": [name for name in __all__ if name.startswith("VanillaTransformer")],
    "presets": ["PRESETS"],
    "translation": ["Hypothesis", "Translator"],
    "translation_pipeline": ["TranslationPipeline"],
}
_MODULE_OF = {name: module for module, names in reversed(_MODULES.items()) for name in names}


def __getattr__(name: str) -> Any:
    if name == "beam_search":
        return import_module(f"{__name__}.beam_search")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


registration.register()
