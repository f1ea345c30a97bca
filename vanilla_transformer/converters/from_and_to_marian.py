"""Conversion from and to MarianMT, which is the same network under other names.

    from vanilla_transformer.converters.from_and_to_marian import from_marian, load, to_marian

    model = from_marian(load("Helsinki-NLP/opus-mt-en-de", "marian"))

Every MarianMT checkpoint with the sinusoids of its class can be converted. The OPUS-MT models are the paper's model
with SiLU in the feed-forward networks, sines before cosines, and a trained bias on the output projection. That bias is
`final_logits_bias` there and `output_bias=True` here; a bias of zeros is left out. Their decoder starts from padding,
which neither model masks: a decoder mask of your own must show the first token.

Not every model of this package can become MarianMT. `to_marian` names the field that prevents it.
"""

import copy
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel, PreTrainedModel

from vanilla_transformer.hub.languages import languages_of, record_languages
from vanilla_transformer.hub.loading import load_config, load_model
from vanilla_transformer.models.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.search_options import SEARCH, library_names, names_own_search
from vanilla_transformer.models.searches import options_of

from .saved_weights import POSITIONS, position_tables
from .supported_models import require_understood


State = dict[str, torch.Tensor]

# Config fields with the same name and meaning in both.
SAME_FIELDS = (
    *("vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"),
    *("encoder_attention_heads", "decoder_attention_heads", "activation_function", "scale_embedding"),
    *("dropout", "attention_dropout", "activation_dropout", "max_position_embeddings", "tie_word_embeddings"),
    *("use_cache", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
# Config fields that `config_to_marian` handles, by another name or only for some of their values.
UNDERSTOOD = (
    *SAME_FIELDS,
    *("target_vocab_size", "share_encoder_decoder_embeddings", "output_bias", "d_k", "d_v", "position_encoding"),
)
# Config fields whose value is fixed in MarianMT's code.
FIXED_IN_MARIAN = {"norm_placement": "post", "position_encoding": "sinusoidal_halves", "layer_norm_eps": 1e-5}
# Parts of a layer: MarianMT's name and ours.
LAYER_NAMES = {
    ".self_attn_layer_norm.": ".self_attn_residual.norm.",
    ".encoder_attn_layer_norm.": ".encoder_attn_residual.norm.",
    ".final_layer_norm.": ".feed_forward_residual.norm.",
    ".fc1.": ".feed_forward.fc1.",
    ".fc2.": ".feed_forward.fc2.",
}
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def load(name_or_path: str | Path, model_type: str, **options: Any) -> PreTrainedModel:
    """Loads a model of one type from a folder or the Hub; weights keep the type they have in the file.

    Args:
        name_or_path: Folder, or name on the Hub.
        model_type: The type it must have: `"marian"` or `"vanilla_transformer"`.
        options: Those of `from_pretrained`, such as `revision`.
    """
    found_type = load_config(name_or_path, **options).model_type
    if found_type != model_type:
        raise ValueError(f"{name_or_path} is a model of type {found_type!r}: give one of type {model_type!r}.")
    return load_model(name_or_path, **options)


def from_marian(marian: MarianMTModel) -> VanillaTransformerForConditionalGeneration:
    """Converts MarianMT into this package's model, with the same generation settings; weights keep their type."""
    state = state_from_marian(marian.state_dict())
    config = config_from_marian(marian.config, output_bias="lm_head.bias" in state)
    for name in POSITION_TABLES:
        _require_sinusoids(name, marian.get_parameter(name), config)
    model = VanillaTransformerForConditionalGeneration(config).to(marian.dtype)
    model.load_state_dict(state)
    model.generation_config = copy.deepcopy(marian.generation_config)
    return model.eval()


def to_marian(model: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """Converts this package's model into MarianMT, with the generation settings that it can have; weights keep their
    type. A length penalty in the sense of this package's search is left out: MarianMT would read it as another one."""
    config = config_to_marian(model.config)
    # MarianConfig has this generation setting too, with a default of its own.
    config.forced_eos_token_id = model.generation_config.forced_eos_token_id
    state = state_to_marian(_permuted(model.state_dict(), _order_of_marian(model.config)), config)
    marian = MarianMTModel(config).to(model.dtype)
    marian.load_state_dict(state | {name: marian.get_parameter(name) for name in POSITION_TABLES})
    marian.generation_config = _without_search(model)
    return marian.eval()


def _without_search(model: VanillaTransformerForConditionalGeneration) -> GenerationConfig:
    """The generation config without what only this package's search reads."""
    config = copy.deepcopy(model.generation_config)
    if names_own_search(model, config):
        options = options_of(model)
        config.length_penalty = config.length_penalty if getattr(options, "penalty", None) == "length" else None
        for name in (SEARCH, *(option.name for option in fields(options))):
            if name not in library_names():
                vars(config).pop(name, None)
    return config


# --- configs ---


def config_from_marian(config: MarianConfig, *, output_bias: bool = False) -> VanillaTransformerConfig:
    """Converts a config of MarianMT. Its layerdrop, which is used in training only, is left out.

    Args:
        config: The config of MarianMT.
        output_bias: Whether `final_logits_bias` has values other than zero.
    """
    converted = VanillaTransformerConfig(
        **{name: getattr(config, name) for name in SAME_FIELDS},
        **FIXED_IN_MARIAN,
        target_vocab_size=None if config.share_encoder_decoder_embeddings else config.decoder_vocab_size,
        output_bias=output_bias,
    )
    record_languages(converted, languages_of(config))
    return converted


def config_to_marian(config: VanillaTransformerConfig) -> MarianConfig:
    """Converts a config into one of MarianMT, and refuses fields that MarianMT can't represent."""
    require_understood(config, UNDERSTOOD, "MarianMT")
    _order_of_marian(config)
    _require_plain_heads(config)
    if config.decoder_start_token_id is None:
        raise ValueError("decoder_start_token_id=None can't become MarianMT: set it to the decoder's first token.")
    converted = MarianConfig(
        **{name: getattr(config, name) for name in SAME_FIELDS},
        decoder_vocab_size=config.output_vocab_size,
        share_encoder_decoder_embeddings=config.shares_embeddings and config.tie_word_embeddings,
        forced_eos_token_id=None,
    )
    record_languages(converted, languages_of(config))
    return converted


def _require_plain_heads(config: VanillaTransformerConfig) -> None:
    """Refuses heads whose width is not d_model divided by their number."""
    for name in ("d_k", "d_v"):
        for heads in (config.encoder_attention_heads, config.decoder_attention_heads):
            if (width := getattr(config, name)) is not None and width * heads != config.d_model:
                raise ValueError(
                    f"{name}={width} can't become MarianMT, which divides d_model={config.d_model} among its heads: "
                    f"train a model with {name}={config.d_model // heads}."
                )


def _order_of_marian(config: VanillaTransformerConfig) -> torch.Tensor:
    """Returns the order of the d_model dimensions [D] in which the model's positions are MarianMT's.

    MarianMT has all sines before all cosines. The paper has them alternate.
    """
    same_order = torch.arange(config.d_model)
    if config.d_model % 2 == 0 and config.position_encoding == FIXED_IN_MARIAN["position_encoding"]:
        return same_order
    if config.d_model % 2 == 0 and config.position_encoding == "sinusoidal":
        return torch.cat([same_order[::2], same_order[1::2]])
    raise ValueError(
        f"position_encoding={config.position_encoding!r} can't become MarianMT, which only has "
        f"{FIXED_IN_MARIAN['position_encoding']!r}: train a model with that."
    )


# --- weights ---


def state_from_marian(state: State) -> State:
    """Renames MarianMT's weights. `lm_head.bias` is among the result if the bias has values other than zero."""
    left_out = (*POSITION_TABLES, "model.shared.weight", "final_logits_bias")
    renamed = {rename(name, LAYER_NAMES): tensor for name, tensor in state.items() if name not in left_out}
    bias = state["final_logits_bias"].squeeze(0)  # [1, V] -> [V]
    return {**renamed, "lm_head.bias": bias} if bias.any() else renamed


def state_to_marian(state: State, config: MarianConfig) -> State:
    """Renames this model's weights for a MarianMT with that config, whose position tables are not included."""
    names = {our_name: marian_name for marian_name, our_name in LAYER_NAMES.items()}
    renamed = {rename(name, names): tensor for name, tensor in state.items() if name != "lm_head.bias"}
    output = state["lm_head.weight"]
    renamed["final_logits_bias"] = state.get("lm_head.bias", output.new_zeros(len(output)))[None]
    if config.share_encoder_decoder_embeddings:
        renamed["model.shared.weight"] = renamed["model.encoder.embed_tokens.weight"]
    return renamed


def _permuted(state: State, order: torch.Tensor) -> State:
    """Returns the weights of the same network with its d_model dimensions in another order.

    Layers that read states have d_model as their last dimension. Layers that write or normalise them have it as their
    first.
    """
    permuted = {}
    for name, tensor in state.items():
        if any(part in name for part in (".out_proj.", ".fc2.", ".norm.")):
            permuted[name] = tensor[order]
        else:
            # Other biases are not permuted: their order does not depend on d_model.
            permuted[name] = tensor[:, order] if tensor.dim() == 2 else tensor
    return permuted


def rename(name: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        if old in name:
            return name.replace(old, new)
    return name


def _require_sinusoids(name: str, table: torch.Tensor, config: VanillaTransformerConfig) -> None:
    """Refuses a checkpoint whose position table is not the sinusoids that this model computes."""
    computed = torch.from_numpy(position_tables(config, {}, len(table))[POSITIONS.format("encoder")]).to(table)
    if not torch.allclose(table, computed, rtol=0.0, atol=4 * torch.finfo(table.dtype).eps):
        raise ValueError(f"{name} holds other positions than sinusoids: only checkpoints with those can be converted.")


@torch.inference_mode()
def largest_difference(model: PreTrainedModel, other: PreTrainedModel) -> float:
    """Returns the largest difference between the logits of two models with the same vocabularies.

    The inputs are a few random tokens.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (4, min(24, model.config.max_position_embeddings))
    attention_mask = torch.ones(shape, dtype=torch.long)
    attention_mask[1:, shape[1] // 2 :] = 0
    inputs = {
        "input_ids": torch.randint(model.config.vocab_size, shape, generator=generator),
        "attention_mask": attention_mask,
        "decoder_input_ids": torch.randint(model.lm_head.out_features, shape, generator=generator),
    }
    return (model(**inputs).logits - other(**inputs).logits).abs().max().item()
