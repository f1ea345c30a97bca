"""What CTranslate2 is known to do as torch does: the list by which the engine `auto` chooses.

Everything that is set counts: in the call, in the model's generation config and in its config. What is not listed is
torch's.
"""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from vanilla_transformer.converters.saved_weights import find_weights
from vanilla_transformer.converters.to_ctranslate2 import can_export_saved, require_expressible
from vanilla_transformer.hub.saved_files import GENERATION_CONFIG, find_file, read_config, read_settings
from vanilla_transformer.hub.saved_tokenizer import SavedTokenizer, read_tokenizers
from vanilla_transformer.models.search_options import LIBRARY_DEFAULTS, SEARCH, SearchOptions
from vanilla_transformer.models.tokenization_vanilla_transformer import language_tag, language_tags


# Values of the search's options with which CTranslate2 is known to find torch's translations.
ALIKE: dict[str, Callable[[Any], bool]] = {
    "num_beams": lambda value: value <= 16,
    "length_penalty": lambda value: 0 <= value <= 2,
    "penalty": lambda value: value == "gnmt",
    "max_extra_tokens": lambda value: True,
}
ALIKE_IN_A_CALL = ("max_length", "max_new_tokens", "num_return_sequences")
# Settings of a generation config that say nothing about a search, or are given to both engines with each call.
ALIKE_IF_STORED = (*(SEARCH, *ALIKE, "calibration", "transformers_version", "_from_model_config"),)
SPECIAL_IDS = (
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
)  # CTranslate2 has those of the config
UNSET = {  # what the library's trainer writes for settings that are not set
    **LIBRARY_DEFAULTS,
    **{"do_sample": False, "num_return_sequences": 1, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0},
    **{"num_assistant_tokens": 20, "num_assistant_tokens_schedule": "constant", "target_lookbehind": 10},
    **{"assistant_confidence_threshold": 0.4, "assistant_lookbehind": 10},
}


def why_not_a_call(search: SearchOptions | None, options: dict[str, Any]) -> str | None:
    """Says why torch decodes a call; `None` if CTranslate2 does.

    Args:
        search: The options of the search; `None` for samples.
        options: Further options of `generate`.
    """
    if search is None:
        return "samples"
    for option in fields(search):
        value = getattr(search, option.name)
        if option.name not in ALIKE or not ALIKE[option.name](value):
            return f"{option.name}={value!r}"
    others = (name for name, value in options.items() if name not in ALIKE_IN_A_CALL and not _is_unset(name, value))
    return next(others, None)


def why_not_a_model(name_or_path: str | Path, **options: Any) -> str | None:
    """Says why torch decodes a model; `None` if CTranslate2 does.

    Args:
        name_or_path: Folder, or name on the Hub.
        options: Options of `from_pretrained`.
    """
    config = read_config(name_or_path, **options)
    if not can_export_saved(config):
        return f"a model of type {config.model_type!r} with its positions"
    try:
        require_expressible(config)
    except ValueError as error:
        return str(error).split(":")[0]
    if (dtype := getattr(config, "dtype", None)) != "float32":
        return f"dtype={dtype!r} of its config"
    tokenizers = read_tokenizers(name_or_path, **options)
    if not find_weights(name_or_path, **options) or tokenizers is None:
        return "its weights or its tokenizer need transformers"
    path = find_file(name_or_path, GENERATION_CONFIG, required=False, **options)
    return f"it has no {GENERATION_CONFIG}" if path is None else _unlike(read_settings(path), config, tokenizers[0])


def _unlike(settings: dict[str, Any], config: Any, tokenizer: SavedTokenizer) -> str | None:
    """Names a setting of a generation config that CTranslate2 is not known to follow."""
    tags = [[tokenizer.convert_tokens_to_ids(language_tag(language))] for language in language_tags(tokenizer)]
    for name, value in {**dict.fromkeys(SPECIAL_IDS), **settings}.items():
        if name in SPECIAL_IDS:
            is_alike = value == getattr(config, name) and isinstance(value, int)
        elif name == "bad_words_ids" and isinstance(value, list):
            # Forbidden before the softmax, and after it in torch. A tag has next to no probability.
            is_alike = all(ids in tags for ids in value)
        elif name in ("max_length", "use_cache"):
            is_alike = isinstance(value, int)
        else:
            is_alike = name in ALIKE_IF_STORED or _is_unset(name, value)
        if not is_alike:
            return f"{name}={value!r:.40} of its generation_config"
    return None


def _is_unset(name: str, value: Any) -> bool:
    return value is None or value is False or (name in UNSET and value == UNSET[name])
