"""MarianMT and this model are one network under two sets of names: weights and configuration, one to the other.

    from vanilla_transformer.converters.marian import from_marian, load, to_marian

    model = from_marian(load("Helsinki-NLP/opus-mt-en-de", "marian"))

Every MarianMT checkpoint with the sinusoids of its class fits. The OPUS-MT models are the paper's, with SiLU in the
feed-forward networks, sines before cosines, and a trained bias on the output projection. That is `final_logits_bias`
there and `output_bias=True` here; where it is all zeros it is left out. Their decoder starts from padding, which
neither model masks: a decoder mask of your own must show the first token.

Not every model of this package is a MarianMT. `to_marian` names the field that stands in the way.
"""

import copy
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel, PreTrainedModel

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..loading import LOADING_ERRORS, reason_of
from ..modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration
from ..positions import SinusoidalHalvesPositions


State = dict[str, torch.Tensor]

SAME_FIELDS = (
    *("vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"),
    *("encoder_attention_heads", "decoder_attention_heads", "activation_function", "scale_embedding"),
    *("dropout", "attention_dropout", "activation_dropout", "max_position_embeddings", "tie_word_embeddings"),
    *("use_cache", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
# What is fixed in MarianMT's code. The paper's sinusoids are the same waves in another order: see `_in_halves`.
MARIAN_ONLY_HAS = {"norm_placement": "post", "position_encoding": "sinusoidal_halves", "layer_norm_eps": 1e-5}
# MarianMT's name for a part of a layer, and ours.
LAYER_NAMES = {
    ".self_attn_layer_norm.": ".self_attn_residual.norm.",
    ".encoder_attn_layer_norm.": ".encoder_attn_residual.norm.",
    ".final_layer_norm.": ".feed_forward_residual.norm.",
    ".fc1.": ".feed_forward.fc1.",
    ".fc2.": ".feed_forward.fc2.",
}
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def load(name_or_path: str | Path, model_type: str, **options) -> PreTrainedModel:
    """A whole checkpoint from a folder or the Hub, in the type its weights have.

    Nothing is unpickled: weights come from safetensors, or from a `pytorch_model.bin` that holds tensors only.

    Args:
        name_or_path: Folder, or name on the Hub.
        model_type: What it must be: `"marian"` or `"vanilla_transformer"`.
        options: Those of `from_pretrained`, such as `revision`.
    """
    try:
        found = AutoConfig.from_pretrained(name_or_path, **options).model_type
    except OSError as error:
        raise ValueError(
            f"{name_or_path} is no folder of a model, nor found on the Hub: {reason_of(error)}"
        ) from error
    if found != model_type:
        raise ValueError(f"{name_or_path} is a model of type {found!r}: give one of type {model_type!r}.")
    try:
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            name_or_path, dtype="auto", weights_only=True, output_loading_info=True, **options
        )
    except LOADING_ERRORS as error:
        raise ValueError(
            f"The weights of {name_or_path} can't be loaded ({reason_of(error)}): get them again, whole."
        ) from error
    if report["missing_keys"]:
        raise ValueError(f"{name_or_path} has no weight {min(report['missing_keys'])}: download it again.")
    return model.eval()


def from_marian(marian: MarianMTModel) -> VanillaTransformerForConditionalGeneration:
    """The same network as this model, with the same generation settings; weights keep their type."""
    state = state_from_marian(marian.state_dict())
    config = config_from_marian(marian.config, output_bias="lm_head.bias" in state)
    for name in POSITIONS:
        _require_sinusoids(name, marian.get_parameter(name), config)
    model = VanillaTransformerForConditionalGeneration(config).to(marian.dtype)
    model.load_state_dict(state)
    model.generation_config = copy.deepcopy(marian.generation_config)
    return model.eval()


def to_marian(model: VanillaTransformerForConditionalGeneration) -> MarianMTModel:
    """The same network as MarianMT, with the same generation settings; weights keep their type."""
    config = config_to_marian(model.config)
    # MarianMT has it among the fields of the model too, with a default of its own.
    config.forced_eos_token_id = model.generation_config.forced_eos_token_id
    state = model.state_dict()
    if model.config.position_encoding == "sinusoidal":
        state = _in_halves(state)
    state = state_to_marian(state, config)
    marian = MarianMTModel(config).to(model.dtype)
    marian.load_state_dict(state | {name: marian.get_parameter(name) for name in POSITIONS})
    marian.generation_config = copy.deepcopy(model.generation_config)
    return marian.eval()


def config_from_marian(config: MarianConfig, *, output_bias: bool = False) -> VanillaTransformerConfig:
    """The configuration of the same network as this model.

    Args:
        config: MarianMT's. Its layerdrop, a habit of training alone, has no counterpart.
        output_bias: Whether its `final_logits_bias` is more than zeros.
    """
    return VanillaTransformerConfig(
        **{name: getattr(config, name) for name in SAME_FIELDS},
        **MARIAN_ONLY_HAS,
        target_vocab_size=None if config.share_encoder_decoder_embeddings else config.decoder_vocab_size,
        output_bias=output_bias,
    )


def config_to_marian(config: VanillaTransformerConfig) -> MarianConfig:
    """The configuration of the same network as MarianMT; a field that MarianMT can't express is refused."""
    for name, only in MARIAN_ONLY_HAS.items():
        value = getattr(config, name)
        if value != only and value != "sinusoidal":
            raise ValueError(
                f"{name}={value!r} can't become MarianMT, which only has {only!r}: train a model with that."
            )
    _require_plain_heads(config)
    if config.decoder_start_token_id is None:
        raise ValueError("decoder_start_token_id=None can't become MarianMT: set it to the decoder's first token.")
    return MarianConfig(
        **{name: getattr(config, name) for name in SAME_FIELDS},
        decoder_vocab_size=config.output_vocab_size,
        share_encoder_decoder_embeddings=config.shares_embeddings and config.tie_word_embeddings,
        forced_eos_token_id=None,
    )


def state_from_marian(state: State) -> State:
    """MarianMT's weights by this model's names. `lm_head.bias` is among them where the bias is more than zeros."""
    left_out = (*POSITIONS, "model.shared.weight", "final_logits_bias")
    found = {_renamed(name, LAYER_NAMES): tensor for name, tensor in state.items() if name not in left_out}
    bias = state["final_logits_bias"].squeeze(0)  # [1, V] -> [V]
    return {**found, "lm_head.bias": bias} if bias.any() else found


def state_to_marian(state: State, config: MarianConfig) -> State:
    """This model's weights by the names of a MarianMT with that configuration, without its table of positions."""
    names = {ours: theirs for theirs, ours in LAYER_NAMES.items()}
    found = {_renamed(name, names): tensor for name, tensor in state.items() if name != "lm_head.bias"}
    output = state["lm_head.weight"]
    found["final_logits_bias"] = state.get("lm_head.bias", output.new_zeros(len(output)))[None]
    if config.share_encoder_decoder_embeddings:
        found["model.shared.weight"] = found["model.encoder.embed_tokens.weight"]
    return found


def _in_halves(state: State) -> State:
    """The same network with the places of d_model in another order: sines, which stood at even places, before cosines.

    What reads states has d_model as its last dimension, what writes or normalises them as its first.
    """
    d_model = state["lm_head.weight"].shape[1]
    order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
    found = {}
    for name, tensor in state.items():
        if any(part in name for part in (".out_proj.", ".fc2.", ".norm.")):
            found[name] = tensor[order]
        else:
            found[name] = tensor[:, order] if tensor.dim() == 2 else tensor  # a bias there is in no order of d_model
    return found


@torch.inference_mode()
def largest_difference(model: PreTrainedModel, other: PreTrainedModel) -> float:
    """How far apart the logits of two models with the same vocabularies are at most, over a few random tokens."""
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


def _renamed(name: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        if old in name:
            return name.replace(old, new)
    return name


def _require_sinusoids(name: str, table: torch.Tensor, config: VanillaTransformerConfig) -> None:
    """A checkpoint may bring a table of its own. This model computes its sinusoids."""
    computed = SinusoidalHalvesPositions(config)(torch.arange(len(table), device=table.device)).to(table.dtype)
    if not torch.allclose(table, computed, rtol=0.0, atol=4 * torch.finfo(table.dtype).eps):
        raise ValueError(f"{name} holds other positions than sinusoids: only checkpoints with those can be converted.")


def _require_plain_heads(config: VanillaTransformerConfig) -> None:
    for name in ("d_k", "d_v"):
        for heads in (config.encoder_attention_heads, config.decoder_attention_heads):
            if (width := getattr(config, name)) is not None and width * heads != config.d_model:
                raise ValueError(
                    f"{name}={width} can't become MarianMT, whose heads share out d_model={config.d_model} evenly: "
                    f"train a model with {name}={config.d_model // heads}."
                )
