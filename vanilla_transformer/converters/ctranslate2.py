"""This model in the format of CTranslate2, a C++ engine for translation, in float32 or with weights of 16 or 8 bits.

    from vanilla_transformer.converters.ctranslate2 import export, translate

    export(model, tokenizer, "models/en-de", quantization="int8")
    translate(ctranslate2.Translator("models/en-de"), [tokenizer("The cat sleeps.").tokens()])

The engine computes what the model does: pre- or post-norm, tied embeddings or not, one vocabulary or two. Positions
become a table, so exported sinusoids end somewhere. Tokens that the model's generation settings forbid (OPUS-MT's
`bad_words_ids` forbid padding) get a bias that rules them out.

Its beam search is not quite the paper's. It divides by length^alpha, not by ((5 + length) / 6)^alpha, and is done with
the first `num_beams` finished translations: that is `beam_search(penalty="length")` with `early_stopping=True`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from ..configuration_vanilla_transformer import VanillaTransformerConfig
from ..modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerStack,
)


if TYPE_CHECKING:  # an optional dependency: imported where it is needed
    import ctranslate2
    from ctranslate2.specs.model_spec import LayerSpec
    from ctranslate2.specs.transformer_spec import TransformerSpec


Quantization = Literal[
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
]
# The library's activations by the engine's names.
ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_new": "GELUTanh",
    "gelu_pytorch_tanh": "GELUTanh",
    "quick_gelu": "GELUSigmoid",
    "silu": "SWISH",
    "swish": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}
NEVER = -1e4  # as a logit; float16 can hold it


def export(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    quantization: Quantization = "float32",
    max_positions: int | None = None,
) -> None:
    """Writes the model into an existing folder.

    Args:
        model: The model.
        tokenizer: Its tokenizer, or the source's. The engine reads and writes pieces.
        folder: Where to.
        target_tokenizer: The target's, for separate vocabularies.
        quantization: Type of the weights.
        max_positions: The longest source or translation that sinusoids are written for; as many as
            `max_position_embeddings` by default. Learned positions are written as they are.
    """
    require_quantization(quantization)
    config = model.config
    source = vocabulary(tokenizer, config.vocab_size)
    target = vocabulary(target_tokenizer or tokenizer, config.output_vocab_size, as_target=True)
    spec = specification(model, max_positions or config.max_position_embeddings)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    if tokenizer.unk_token is not None:
        spec.config.unk_token = tokenizer.unk_token
    spec.config.decoder_start_token = spec.config.bos_token = target[config.decoder_start_token_id]
    spec.config.eos_token = target[_only(config.eos_token_id)]
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))


def translate(
    translator: "ctranslate2.Translator",
    sources: Sequence[list[str]],
    *,
    num_beams: int = 4,
    length_penalty: float = 0.6,
    max_new_tokens: int = 256,
    **options,
) -> list[list[str]]:
    """The best translation of each source, in pieces, both with their end of sentence.

    Args:
        translator: The exported model.
        sources: Pieces, as the tokenizer cuts text.
        num_beams: Beam of the search; 1 is greedy.
        length_penalty: Alpha in length^alpha.
        max_new_tokens: The longest translation.
        options: Others of `translate_batch`.
    """
    results = translator.translate_batch(
        sources,
        beam_size=num_beams,
        length_penalty=length_penalty,
        max_decoding_length=max_new_tokens,
        max_input_length=0,  # the engine would cut sources silently: a table that is too short is an error
        return_end_token=True,
        **{"min_decoding_length": 0, **options},
    )
    return [result.hypotheses[0] for result in results]


def vocabulary(tokenizer: PreTrainedTokenizerBase, size: int, *, as_target: bool = False) -> list[str]:
    """The pieces of a tokenizer by their ids, with made-up names for ids that the model has beyond them.

    Args:
        tokenizer: The tokenizer.
        size: Tokens of the model.
        as_target: Whether to ask for the target's pieces, where one tokenizer has two vocabularies (MarianMT's).
    """
    of_target = getattr(tokenizer, "target_encoder", None) if as_target else None
    pieces = {token_id: piece for piece, token_id in (of_target or tokenizer.get_vocab()).items()}
    if (largest := max(pieces)) >= size:
        raise ValueError(
            f"The tokenizer has an id {largest}, the model only {size} tokens: give the tokenizer of this model."
        )
    return [pieces.get(token_id, f"<unused {token_id}>") for token_id in range(size)]


def specification(model: VanillaTransformerForConditionalGeneration, max_positions: int) -> "TransformerSpec":
    """The engine's description of the model, weights included; vocabularies are still to be registered."""
    specs = require_ctranslate2().specs
    config = model.config
    _require_expressible(config)
    common = {
        "pre_norm": config.norm_placement == "pre",
        "activation": specs.Activation[ACTIVATIONS[config.activation_function]],
        "head_dim": config.d_k or config.d_v,
    }
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.encoder_layers, config.encoder_attention_heads, **common),
        specs.TransformerDecoderSpec(config.decoder_layers, config.decoder_attention_heads, **common),
    )
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.encoder.embeddings[0].weight = _copy(model.model.encoder.embed_tokens.weight)
    spec.decoder.embeddings.weight = _copy(model.model.decoder.embed_tokens.weight)
    _fill_stack(spec.encoder, model.model.encoder, max_positions)
    _fill_stack(spec.decoder, model.model.decoder, max_positions)
    _fill_linear(spec.decoder.projection, model.lm_head)
    if forbidden := [ids[0] for ids in model.generation_config.bad_words_ids or [] if len(ids) == 1]:
        bias = torch.zeros(config.output_vocab_size) if model.lm_head.bias is None else spec.decoder.projection.bias
        spec.decoder.projection.bias = bias.index_fill(0, torch.tensor(forbidden), NEVER)
    return spec


def require_quantization(quantization: str) -> None:
    if quantization not in get_args(Quantization):
        raise ValueError(
            f"quantization={quantization!r} is unknown: choose one of {', '.join(get_args(Quantization))}."
        )


def require_ctranslate2():
    try:
        import ctranslate2
    except ImportError as error:
        raise ImportError("This needs CTranslate2: pip install 'vanilla-transformer[ctranslate2]'") from error
    return ctranslate2


def _fill_stack(spec: "LayerSpec", stack: VanillaTransformerStack, max_positions: int) -> None:
    positions = torch.arange(stack.embed_positions.max_length or max_positions, device=stack.device)
    spec.position_encodings.encodings = _copy(stack.embed_positions(positions))
    spec.scale_embeddings = stack.embed_tokens.scale
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _fill_attention(layer_spec.self_attention, layer.self_attn, layer.self_attn_residual.norm)
        if hasattr(layer, "encoder_attn"):
            _fill_attention(layer_spec.attention, layer.encoder_attn, layer.encoder_attn_residual.norm)
        _fill_norm(layer_spec.ffn.layer_norm, layer.feed_forward_residual.norm)
        _fill_linear(layer_spec.ffn.linear_0, layer.feed_forward.fc1)
        _fill_linear(layer_spec.ffn.linear_1, layer.feed_forward.fc2)
    if stack.config.norm_placement == "pre":
        _fill_norm(spec.layer_norm, stack.norm)


def _fill_attention(spec: "LayerSpec", attention: VanillaTransformerAttention, norm: nn.LayerNorm) -> None:
    """The engine has one matrix for what is computed from the same states: all three of self-attention, or the keys
    and values of the source."""
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    parts = [projections] if len(spec.linear) == 2 else [projections[:1], projections[1:]]
    for linear, part in zip(spec.linear, [*parts, [attention.out_proj]], strict=True):
        _fill_linear(linear, *part)
    _fill_norm(spec.layer_norm, norm)


def _fill_linear(spec: "LayerSpec", *layers: nn.Linear) -> None:
    spec.weight = _copy(*(layer.weight for layer in layers))
    if layers[0].bias is not None:
        spec.bias = _copy(*(layer.bias for layer in layers))


def _fill_norm(spec: "LayerSpec", norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _copy(norm.weight), _copy(norm.bias)


def _copy(*tensors: torch.Tensor) -> torch.Tensor:
    """One tensor of all, in float32. Not the model's own memory: CTranslate2 rounds weights where they stand."""
    return torch.cat([tensor.detach().to("cpu", torch.float32) for tensor in tensors])


def _only(eos_token_id: int | list[int]) -> int:
    return eos_token_id[0] if isinstance(eos_token_id, list) else eos_token_id


def _require_expressible(config: VanillaTransformerConfig) -> None:
    """Refuses what the engine has no means for, by the field's name."""
    if config.activation_function not in ACTIVATIONS:
        raise ValueError(
            f"activation_function={config.activation_function!r} is unknown to CTranslate2: train a model with one of "
            f"{', '.join(ACTIVATIONS)}."
        )
    for heads in (config.encoder_attention_heads, config.decoder_attention_heads):
        d_k, d_v = (width or config.d_model // heads for width in (config.d_k, config.d_v))
        if d_k != d_v:
            raise ValueError(
                f"d_k={d_k} and d_v={d_v} differ, but CTranslate2 has one width for keys and values: train a model "
                "whose d_k and d_v are the same."
            )
    if config.decoder_start_token_id is None:
        raise ValueError("decoder_start_token_id=None: CTranslate2 must know the decoder's first token; set it.")
    if config.eos_token_id is None or (isinstance(config.eos_token_id, list) and len(config.eos_token_id) != 1):
        raise ValueError(f"eos_token_id={config.eos_token_id}: CTranslate2 knows one end of sentence; set it to that.")
