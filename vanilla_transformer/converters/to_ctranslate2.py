"""Export to CTranslate2, a C++ engine for translation, in float32 or with weights of 16 or 8 bits.

    from vanilla_transformer.converters.to_ctranslate2 import export, translate

    export(model, tokenizer, "models/en-de", quantization="int8")
    translate(ctranslate2.Translator("models/en-de"), [tokenizer("The cat sleeps.").tokens()])

The engine computes what the model does: pre- or post-norm, tied embeddings or not, one vocabulary or two. Positions
are exported as a table, so even sinusoids have a longest sequence. Tokens that the model's generation settings forbid
(OPUS-MT's `bad_words_ids` forbid padding) get a bias that makes them impossible.

Its beam search is not quite the paper's. It divides by length^alpha, not by ((5 + length) / 6)^alpha, and it ends with
the first `num_beams` finished translations. That is `beam_search.search(penalty="length")` with `early_stopping=True`.
"""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from vanilla_transformer.hub.loading import require_finite
from vanilla_transformer.models.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.modeling_vanilla_transformer import (
    VanillaTransformerAttention,
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerStack,
)

from .supported_models import (
    has_position_table,
    position_encoding_of,
    position_table,
    require_quantization,
    require_understood,
)


if TYPE_CHECKING:  # an optional dependency: imported where it is needed
    import ctranslate2
    from ctranslate2.specs.model_spec import LayerSpec
    from ctranslate2.specs.transformer_spec import TransformerSpec


Quantization = Literal[
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
]
# The config fields that this converter handles; `_require_expressible` checks some of their values.
UNDERSTOOD = (
    *("vocab_size", "target_vocab_size", "d_model", "encoder_layers", "decoder_layers"),
    *("encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "d_k", "d_v"),
    *("activation_function", "norm_placement", "position_encoding", "max_position_embeddings", "scale_embedding"),
    *("layer_norm_eps", "share_encoder_decoder_embeddings", "tie_word_embeddings", "output_bias"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
)
# Activations: the library's name and the engine's.
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
IMPOSSIBLE = -1e4  # as a bias of a logit; float16 can represent it


def export(
    model: VanillaTransformerForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    folder: str | Path,
    *,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    quantization: str = "float32",
    max_positions: int | None = None,
) -> None:
    """Writes the model into an existing folder.

    Args:
        model: The model.
        tokenizer: Its tokenizer, or the source's. The engine reads and writes tokens, not ids.
        folder: The folder.
        target_tokenizer: The target's, for separate vocabularies.
        quantization: Type of the weights, one of `Quantization`.
        max_positions: The longest source or translation, for position encodings without a limit;
            `max_position_embeddings` by default. A bounded encoding, such as learned positions, is written as it is.
    """
    require_quantization(quantization, get_args(Quantization))
    config = model.config
    _require_expressible(config)
    require_finite(model)
    source = vocabulary(tokenizer, config.vocab_size)
    target = vocabulary(target_tokenizer or tokenizer, config.output_vocab_size, as_target=True)
    spec = specification(model, table_length(config, max_positions))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    if tokenizer.unk_token is not None:
        spec.config.unk_token = tokenizer.unk_token
    spec.config.decoder_start_token = spec.config.bos_token = target[_start_token_id(config)]
    spec.config.eos_token = target[_end_token_id(config)]
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
    **options: Any,
) -> list[list[str]]:
    """Returns the best translation of each source, both as tokens that end with the end of sentence.

    Args:
        translator: The exported model.
        sources: Tokens, as the tokenizer splits text.
        num_beams: Beam size; 1 is greedy.
        length_penalty: Alpha in length^alpha.
        max_new_tokens: The longest translation.
        options: Other options of `translate_batch`.
    """
    results = translator.translate_batch(
        sources,
        beam_size=num_beams,
        length_penalty=length_penalty,
        max_decoding_length=max_new_tokens,
        max_input_length=0,  # else the engine truncates sources silently; a source without positions is an error
        return_end_token=True,
        **{"min_decoding_length": 0, **options},
    )
    return [result.hypotheses[0] for result in results]


def vocabulary(tokenizer: PreTrainedTokenizerBase, size: int, *, as_target: bool = False) -> list[str]:
    """Returns the tokens of a tokenizer in the order of their ids, with invented names for ids that it lacks.

    Args:
        tokenizer: The tokenizer.
        size: Vocabulary size of the model.
        as_target: Whether to return the target's tokens, if one tokenizer has two vocabularies (MarianMT's).
    """
    target_ids = getattr(tokenizer, "target_encoder", None) if as_target else None
    tokens = {token_id: token for token, token_id in (target_ids or tokenizer.get_vocab()).items()}
    if (largest := max(tokens)) >= size:
        raise ValueError(
            f"The tokenizer has an id {largest}, the model only {size} tokens: give the tokenizer of this model."
        )
    return [tokens.get(token_id, f"<unused {token_id}>") for token_id in range(size)]


def table_length(config: PreTrainedConfig, max_positions: int | None = None) -> int:
    """Returns how many positions an exported model has.

    Args:
        config: The config of this package's model or of MarianMT.
        max_positions: The number for position encodings without a limit; `max_position_embeddings` by default.
    """
    is_ours = config.model_type == VanillaTransformerConfig.model_type
    limit = position_encoding_of(config).max_length if is_ours else None
    return limit or max_positions or config.max_position_embeddings


def specification(model: VanillaTransformerForConditionalGeneration, max_positions: int) -> "TransformerSpec":
    """Returns the engine's description of the model, with weights and without vocabularies.

    Args:
        model: The model.
        max_positions: Length of the position tables.
    """
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
        specs.TransformerDecoderSpec(
            config.decoder_layers,
            config.decoder_attention_heads,
            # The attention that the engine returns: the mean of all heads of the last layer but one aligns best.
            alignment_layer=max(config.decoder_layers - 2, 0),
            alignment_heads=config.decoder_attention_heads,
            **common,
        ),
    )
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.encoder.embeddings[0].weight = _copy(model.model.encoder.embed_tokens.weight)
    spec.decoder.embeddings.weight = _copy(model.model.decoder.embed_tokens.weight)
    _fill_stack(spec.encoder, model.model.encoder, max_positions)
    _fill_stack(spec.decoder, model.model.decoder, max_positions)
    _fill_linear(spec.decoder.projection, model.lm_head)
    if forbidden := [ids[0] for ids in model.generation_config.bad_words_ids or [] if len(ids) == 1]:
        bias = torch.zeros(config.output_vocab_size) if model.lm_head.bias is None else spec.decoder.projection.bias
        spec.decoder.projection.bias = bias.index_fill(0, torch.tensor(forbidden), IMPOSSIBLE)
    return spec


def require_ctranslate2() -> ModuleType:
    """Imports CTranslate2, or says how to install it."""
    try:
        import ctranslate2
    except ImportError as error:
        raise ImportError("This needs CTranslate2: pip install ctranslate2") from error
    return ctranslate2


def _fill_stack(spec: "LayerSpec", stack: VanillaTransformerStack, max_positions: int) -> None:
    device = stack.embed_tokens.weight.device
    spec.position_encodings.encodings = _copy(position_table(stack.embed_positions, max_positions, device))
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
    """Joins projections of the same states into one matrix, as the engine has them.

    In self-attention these are queries, keys and values, in attention to the source keys and values.
    """
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
    """Joins tensors into a new one in float32. CTranslate2 rounds weights in place, so it must not get the model's."""
    return torch.cat([tensor.detach().to("cpu", torch.float32) for tensor in tensors])


def _start_token_id(config: VanillaTransformerConfig) -> int:
    if config.decoder_start_token_id is None:
        raise ValueError("decoder_start_token_id=None: CTranslate2 needs the decoder's first token; set it.")
    return config.decoder_start_token_id


def _end_token_id(config: VanillaTransformerConfig) -> int:
    match config.eos_token_id:
        case int(token_id) | [int(token_id)]:
            return token_id
    raise ValueError(f"eos_token_id={config.eos_token_id}: CTranslate2 needs one end of sentence; set it to one.")


def _require_expressible(config: VanillaTransformerConfig) -> None:
    """Refuses a config that the engine can't represent, by the name of the field."""
    require_understood(config, UNDERSTOOD, "a CTranslate2 model")
    if not has_position_table(position_encoding_of(config)):
        raise ValueError(
            f"position_encoding={config.position_encoding!r} can't become a CTranslate2 model, which only adds "
            "vectors to embeddings: train a model with such an encoding."
        )
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
    _start_token_id(config)
    _end_token_id(config)
