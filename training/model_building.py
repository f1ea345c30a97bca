"""Building the model that a recipe describes: a new one of any encoder-decoder architecture, or a trained one."""

from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

from vanilla_transformer.decoding_options import set_decoding
from vanilla_transformer.loading import load_config, load_model
from vanilla_transformer.spelling import suggestion
from vanilla_transformer.training.arguments import ModelArguments


# Read by the training objective from any config, whether its class has the field or not.
LABEL_SMOOTHING = "label_smoothing"


def make_model(
    arguments: ModelArguments,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> PreTrainedModel:
    """Builds a new model that fits the tokenizers, or loads a trained one to continue from.

    Args:
        arguments: The model's keys of the recipe.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target tokenizer, for separate vocabularies.
    """
    if arguments.model_name_or_path:
        model = load_trained(arguments, arguments.model_name_or_path)
    else:
        model = AutoModelForSeq2SeqLM.from_config(make_config(arguments, tokenizer, target_tokenizer))
    decoding = {name: getattr(arguments, name) for name in ("num_beams", "length_penalty")}
    if any(value is not None for value in decoding.values()):
        set_decoding(model.generation_config, **decoding)
    return model


# --- a new model ---


def make_config(
    arguments: ModelArguments,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> PreTrainedConfig:
    """Builds the config of a new model: sizes from the preset and `model_config`, vocabulary from the tokenizers."""
    default = default_config(arguments.model_type)
    fields = {**vocabulary_fields(default, tokenizer, target_tokenizer), **arguments.config_fields}
    if hasattr(default, "from_preset"):
        return type(default).from_preset(arguments.preset, **fields)
    if arguments.preset != ModelArguments.preset:
        raise ValueError(
            f"preset={arguments.preset!r}: model_type {arguments.model_type} has no presets. Leave it out and give "
            "sizes in model_config."
        )
    for name in arguments.config_fields:
        # The library would keep a misspelt field as an attribute that nothing reads.
        if not hasattr(default, name) and name != LABEL_SMOOTHING:
            known = default.to_dict()
            raise ValueError(f"{name!r} is not a field of {type(default).__name__}{suggestion(name, known)}.")
    return AutoConfig.for_model(arguments.model_type, **fields)


def default_config(model_type: str) -> PreTrainedConfig:
    """Returns the default config of an encoder-decoder architecture; raises a ValueError for any other name."""
    if model_type not in CONFIG_MAPPING or CONFIG_MAPPING[model_type] not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        known = [ModelArguments.model_type, *MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES]
        raise ValueError(
            f"model_type={model_type!r} is not an encoder-decoder that transformers knows"
            f"{suggestion(model_type, known)}: the default is {ModelArguments.model_type}, others are marian and t5."
        )
    return AutoConfig.for_model(model_type)


def vocabulary_fields(
    default: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, target_tokenizer: PreTrainedTokenizerBase | None
) -> dict[str, Any]:
    """Returns the config fields that follow from the tokenizers: vocabulary sizes and special ids."""
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.pad_token_id
    fields = {
        "vocab_size": len(tokenizer),
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": start,
    }
    if getattr(default, "forced_eos_token_id", None) is not None:  # MarianMT and BART end every translation with it
        fields["forced_eos_token_id"] = tokenizer.eos_token_id
    if target_tokenizer is not None:
        fields |= _separate_vocabulary(default, len(target_tokenizer))
    return fields


def _separate_vocabulary(default: PreTrainedConfig, size: int) -> dict[str, Any]:
    if hasattr(default, "target_vocab_size"):
        return {"target_vocab_size": size}
    if hasattr(default, "decoder_vocab_size"):  # MarianMT
        return {"decoder_vocab_size": size, "share_encoder_decoder_embeddings": False}
    raise ValueError(
        f"model_type {default.model_type} has one vocabulary for source and target, but there is a target tokenizer: "
        "set separate to false, or choose another model_type."
    )


# --- a trained model ---


def load_trained(arguments: ModelArguments, path: str) -> PreTrainedModel:
    """Loads a trained model in float32. `model_config` may change its dropout and label smoothing only."""
    fields = arguments.config_fields
    config = load_config(path)
    if arguments.model_type not in (ModelArguments.model_type, config.model_type):
        raise ValueError(
            f"model_type={arguments.model_type!r}, but the trained model {path} is a {config.model_type}: leave "
            "model_type out."
        )
    for name, value in fields.items():
        _require_changeable(config, name, value, path)
    return load_model(path, dtype=torch.float32, **fields)


def _require_changeable(config: PreTrainedConfig, name: str, value: Any, path: str) -> None:
    if not hasattr(config, name) and name != LABEL_SMOOTHING:
        raise ValueError(f"model_config sets {name!r}, which the model {path} has no field of: leave it out.")
    trained_with = getattr(config, name, None)
    if value != trained_with and "dropout" not in name and name != LABEL_SMOOTHING:
        raise ValueError(
            f"model_config sets {name}={value!r}, but the trained model {path} has {trained_with!r}: leave it out of "
            "the recipe, or set it to that."
        )
