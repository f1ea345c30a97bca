"""The Transformer of "Attention Is All You Need" as a first-class Hugging Face model.

Importing this package registers it with transformers: `AutoConfig`, `AutoModel` and `AutoModelForSeq2SeqLM` load it
without remote code, and `pipeline("vanilla-translation", model=...)` translates with it.
"""

import sys
from importlib import import_module
from pathlib import Path


__version__ = "0.1.0"

_HOME_OF = {
    "PAPER_DECODING": "decoding",
    "beam_search": "beam_search",
    "PRESETS": "presets",
    "Hypothesis": "translation",
    "TranslationPipeline": "translation",
    "Translator": "translation",
    "VanillaTransformerConfig": "configuration_vanilla_transformer",
    "VanillaTransformerForConditionalGeneration": "modeling_vanilla_transformer",
    "VanillaTransformerModel": "modeling_vanilla_transformer",
    "VanillaTransformerPreTrainedModel": "modeling_vanilla_transformer",
}
__all__ = list(_HOME_OF)


def __getattr__(name: str):
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]


# One of this package's commands that is asked for its options answers at once: it needs no model, and torch takes
# seconds to load.
if not (Path(sys.argv[0]).name.startswith("vanilla-") and {"-h", "--help"} & set(sys.argv[1:])):
    import_module(".registration", __name__)
    from .beam_search import beam_search as beam_search  # the function, which its module's name would hide
