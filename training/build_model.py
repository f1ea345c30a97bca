"""Building the model that a recipe describes: a new one of any encoder-decoder architecture, or a trained one."""

from typing import Any

import torch
from tokenizers import decoders, models, pre_tokenizers
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

from vanilla_transformer.hub.adapters import add_adapter
from vanilla_transformer.hub.languages import Directions, record_directions
from vanilla_transformer.hub.loading import load_config, load_model, load_tokenizers
from vanilla_transformer.models.searches import has_own_search, store_options
from vanilla_transformer.models.spelling import suggestion
from vanilla_transformer.models.tokenization_vanilla_transformer import (
    TARGET,
    language_tag,
    language_tags,
    placeholders_in,
)
from vanilla_transformer.training.arguments.model_arguments import ModelArguments


# Read by the training objective from any config, whether its class has the field or not.
LABEL_SMOOTHING = "label_smoothing"
MOST_LAYERS, LARGEST_SIZE = 1_000, 10_000_000  # beyond them, a typing error would be computed for minutes
MASK_FIELD = "mask_token_id"  # of the config of a model that predicts masked tokens
# Config fields that say nothing about the shape or the meaning of weights, or follow from the vocabulary.
FREE_FIELDS = (
    *("dropout", "attention_dropout", "activation_dropout", LABEL_SMOOTHING, "use_cache"),
    *("initializer", "initializer_gain"),
    *("vocab_size", "target_vocab_size", "source_lang", "target_lang", "directions"),
)


def make_model(
    arguments: ModelArguments,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    directions: Directions = (),
) -> PreTrainedModel:
    """Builds a new model that fits the tokenizers, or loads a trained one to continue from.

    A model with a search stores its decoding options, so that `generate` gives the translations of the evaluation.

    Args:
        arguments: The model's keys of the recipe.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target tokenizer, for separate vocabularies.
        directions: The directions it is trained for, which its config records.
    """
    if arguments.model_name_or_path:
        model = load_trained(arguments, arguments.model_name_or_path)
        if not arguments.tokenizer:
            before = load_tokenizers(arguments.model_name_or_path)[0]
            carry_embeddings(model, before, tokenizer, target_tokenizer)
    else:
        model = AutoModelForSeq2SeqLM.from_config(make_config(arguments, tokenizer, target_tokenizer))
        if arguments.initialize_from:
            initialize(model, arguments.initialize_from)
    if directions:
        record_directions(model.config, directions)
    record_placeholders(model.config, tokenizer)
    forbid_tags(model, target_tokenizer or tokenizer)
    if arguments.decoding or has_own_search(model):
        store_options(model, **arguments.decoding)
    if arguments.lora_rank:
        width = getattr(model.config, "hidden_size", None)
        if width and arguments.lora_rank > width:
            raise ValueError(f"lora_rank={arguments.lora_rank} is above the model's width, {width}; 16 is usual.")
        add_adapter(model, arguments.lora_rank)
    return model


def record_placeholders(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Records that a model learns placeholders, so that `Translator` writes them."""
    if number := placeholders_in(tokenizer):
        if not hasattr(config, "placeholders"):
            raise ValueError(f"placeholders={number}: a {config.model_type} can't record them. Leave them out.")
        config.placeholders = number


def forbid_tags(model: PreTrainedModel, target_tokenizer: PreTrainedTokenizerBase) -> None:
    """Keeps a model from writing the tags of languages, in the way of OPUS-MT: every engine knows `bad_words_ids`.

    A model that is not decoded from left to right has no such list. It learns never to write what no target has.
    """
    tags = [[token_id] for token_id in language_tags(target_tokenizer).values()]
    if tags and getattr(model, "is_autoregressive", True):
        others = [ids for ids in model.generation_config.bad_words_ids or [] if ids not in tags]
        model.generation_config.bad_words_ids = [*others, *tags]


def carry_embeddings(
    model: PreTrainedModel,
    before: PreTrainedTokenizerBase,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> None:
    """Fits a trained model to another vocabulary (Gee et al. 2022, "Fast Vocabulary Transfer for Language Model
    Compression").

    A token of both keeps its embedding. A new subword starts as the mean of the old tokens for it or, if these are
    fewer, of those for it in another case: capitals mean the same. A new tag starts as the mean of other tags or of
    all tokens.

    Args:
        model: The trained model.
        before: Its tokenizer.
        tokenizer: The new one.
        target_tokenizer: The target tokenizer, for separate vocabularies.
    """
    old, new = before.get_vocab(), tokenizer.get_vocab()
    if new == old:
        return
    if target_tokenizer is not None or not isinstance(before.backend_tokenizer.model, models.BPE):
        raise ValueError(
            f"{len(new.keys() - old.keys())} tokens are new to the model, but only a joint BPE vocabulary can change: "
            "start from a model with one."
        )
    if before.all_special_ids != tokenizer.all_special_ids:
        raise ValueError(
            f"The model has the special tokens {before.all_special_tokens}, the new vocabulary "
            f"{tokenizer.all_special_tokens}: start from a model of vanilla train."
        )
    tags = [old[language_tag(language)] for language in language_tags(before)]
    new_tags = set(map(language_tag, language_tags(tokenizer)))
    like = [
        [old[token]] if token in old else (tags or list(old.values())) if token in new_tags else _parts(token, before)
        for token in sorted(new, key=new.__getitem__)
    ]
    trained = [weight.detach().clone() for weight in _token_matrices(model)]
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        for weight, was in zip(_token_matrices(model), trained, strict=True):
            weight.copy_(torch.stack([was[ids].mean(0) for ids in like]))
    names = {token_id: token for token, token_id in old.items()}
    never = [[names[token_id] for token_id in ids] for ids in model.generation_config.bad_words_ids or []]
    still = [[new[token] for token in tokens] for tokens in never if new.keys() >= set(tokens)]
    model.generation_config.bad_words_ids = still or None


def _parts(token: str, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Returns the ids that a BPE vocabulary has for a subword, or for it in another case if these are fewer."""
    model = tokenizer.backend_tokenizer.model
    parts = [piece.id for piece in model.tokenize(token)]
    text = decoders.ByteLevel().decode([token])
    if "\ufffd" in text:  # a part of a character
        return parts
    for spelling in (text.lower(), text.title()):
        ((other, _),) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(spelling)
        parts = min(parts, [piece.id for piece in model.tokenize(other)] or parts, key=len)
    return parts


def _token_matrices(model: PreTrainedModel) -> list[torch.Tensor]:
    """Returns the matrices with a row for each token, each once."""
    layers = (
        model.get_encoder().get_input_embeddings(),
        model.get_decoder().get_input_embeddings(),
        model.get_output_embeddings(),
    )
    return list({id(layer.weight): layer.weight for layer in layers}.values())


def require_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, target_tokenizer: PreTrainedTokenizerBase
) -> None:
    """Refuses tokenizers that do not belong to a model."""
    config = model.config
    has_both = target_tokenizer is not tokenizer or getattr(tokenizer, "separate_vocabs", False)  # MarianMT's
    if getattr(config, "target_vocab_size", None) is not None and not has_both:
        raise ValueError(
            f"The model has a separate target vocabulary of {config.target_vocab_size:,} tokens, but there is only "
            f"one tokenizer: give the target tokenizer in the subfolder {TARGET!r} of the tokenizer."
        )
    target_size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    for name, size, side in [
        ("vocab_size", config.vocab_size, tokenizer),
        ("target vocabulary", target_size, target_tokenizer),
    ]:
        if len(side) > size:
            raise ValueError(
                f"The tokenizer has {len(side):,} tokens but the model's {name} is {size:,}: they do not belong "
                "together. Use the model's own tokenizer, or resize_token_embeddings."
            )


def needs_mask_token(arguments: ModelArguments) -> bool:
    """Returns whether a new model of this type needs `<mask>` in its vocabulary. A trained model has it already."""
    return not arguments.model_name_or_path and hasattr(default_config(arguments.model_type), MASK_FIELD)


# --- a new model ---


def make_config(
    arguments: ModelArguments,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
) -> PreTrainedConfig:
    """Builds the config of a new model: sizes from the preset and `model_config`, vocabulary from the tokenizers."""
    default = default_config(arguments.model_type)
    return config_of_new_model(arguments, vocabulary_fields(default, tokenizer, target_tokenizer))


def config_of_new_model(arguments: ModelArguments, vocabulary: dict[str, Any]) -> PreTrainedConfig:
    """Builds the config of a new model from the recipe and the fields that follow from the vocabulary."""
    default = default_config(arguments.model_type)
    fields = {**vocabulary, **arguments.config_fields}
    for name, size in fields.items():
        most = MOST_LAYERS if name.endswith("layers") else LARGEST_SIZE
        if isinstance(size, int) and size > most:
            raise ValueError(f"{name}={size} is more than any model has: give at most {most:,}.")
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
    if hasattr(default, MASK_FIELD):
        fields[MASK_FIELD] = (target_tokenizer or tokenizer).mask_token_id
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


def initialize(model: PreTrainedModel, path: str) -> None:
    """Copies all weights that a new model shares with a trained one of another type, such as a teacher.

    Args:
        model: The new model. Its vocabulary may have more tokens at the end; these keep their random embeddings.
        path: The trained model.
    """
    trained = load_model(path, dtype=torch.float32)
    _require_same_network(model.config, trained.config, path)
    weights = trained.state_dict()
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if name in weights:
                weight[: len(weights[name])] = weights[name]


def _require_same_network(config: PreTrainedConfig, trained: PreTrainedConfig, path: str) -> None:
    for name in type(trained).__annotations__:
        theirs, ours = getattr(trained, name), getattr(config, name, None)
        if name not in FREE_FIELDS and theirs != ours:
            raise ValueError(
                f"initialize_from {path} has {name}={theirs!r}, but the new model has {ours!r}: set {name} in "
                "model_config."
            )
    if trained.vocab_size > config.vocab_size:
        raise ValueError(
            f"initialize_from {path} has {trained.vocab_size:,} tokens, but the new model has {config.vocab_size:,}: "
            "leave out tokenizer to use its vocabulary."
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
    # A config that has no field for label smoothing keeps it as an attribute, which the objective reads.
    model = load_model(
        path, dtype=torch.float32, **{name: value for name, value in fields.items() if name != LABEL_SMOOTHING}
    )
    if LABEL_SMOOTHING in fields:
        setattr(model.config, LABEL_SMOOTHING, fields[LABEL_SMOOTHING])
    return model


def _require_changeable(config: PreTrainedConfig, name: str, value: Any, path: str) -> None:
    if not hasattr(config, name) and name != LABEL_SMOOTHING:
        raise ValueError(f"model_config sets {name!r}, which the model {path} has no field of: leave it out.")
    trained_with = getattr(config, name, None)
    if value != trained_with and "dropout" not in name and name != LABEL_SMOOTHING:
        raise ValueError(
            f"model_config sets {name}={value!r}, but the trained model {path} has {trained_with!r}: leave it out of "
            "the recipe, or set it to that."
        )
