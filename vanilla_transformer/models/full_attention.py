"""Masks of full attention, the paper's (section 3.2.3), and checks of what attention can compute.

Shapes: B batch, S keys, D d_model.
"""

from typing import Any

import torch
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask

from .devices import can_look
from .variants import VARIANTS


def full_attention_mask(
    config: Any,
    embeddings: torch.Tensor,
    padding_mask: torch.Tensor | None,
    *,
    is_causal: bool,
    past_key_values: Cache | None = None,
) -> Any:
    """The mask of self-attention in which a token sees all tokens or, if it is causal, itself and those before it.

    Args:
        config: The model's configuration. Its attention implementation decides the type of the mask.
        embeddings: What enters the layers [B, T, D], for its shape and type.
        padding_mask: 1 for tokens and 0 for padding [B, S]; `None` for no padding.
        is_causal: Whether tokens see only themselves and those before them.
        past_key_values: The cache of self-attention.
    """
    if is_causal:
        return create_causal_mask(
            config=config, inputs_embeds=embeddings, attention_mask=padding_mask, past_key_values=past_key_values
        )
    return full_mask(config, embeddings, padding_mask)


def full_mask(
    config: Any,
    embeddings: torch.Tensor,
    padding_mask: torch.Tensor | None,
    encoder_hidden_states: torch.Tensor | None = None,
) -> Any:
    """The mask of attention in which a token sees all tokens but padding, its own sequence's or the encoder's.

    The library looks whether a mask hides anything, where it can.
    """
    return create_bidirectional_mask(
        config=config,
        inputs_embeds=embeddings,
        attention_mask=padding_mask,
        encoder_hidden_states=encoder_hidden_states,
        allow_is_bidirectional_skip=padding_mask is None or can_look(embeddings),
    )


def additive(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask to add to scores: 0 where a key is visible, the smallest number elsewhere."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, torch.finfo(dtype).min
    )


def with_global_tokens(config: Any, global_attention_mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Returns the mask of global tokens as an argument for `make_mask`. Refuses it where the pattern has none."""
    if global_attention_mask is None:
        return {}
    if not getattr(config.variant("attention_pattern"), "takes_global_tokens", False):
        raise ValueError(
            f"attention_pattern={config.attention_pattern!r} has no global tokens: leave out global_attention_mask, "
            "or make the model with attention_pattern='longformer'."
        )
    return {"global_attention_mask": global_attention_mask}


def require_implementation(config: Any, requested: str | None) -> str | None:
    """Returns the attention implementation to use, `None` for the library's choice.

    Refuses one that can't compute the config's variants.

    Args:
        config: The model's configuration.
        requested: Name of an implementation; `None` if nobody asks for one.
    """
    for field in VARIANTS:
        supported = getattr(config.variant(field), "attn_implementations", None)
        if supported is not None and requested is None and "sdpa" not in supported:
            requested = supported[0]
        if supported is not None and requested not in (None, *supported):
            raise ValueError(
                f"attn_implementation={requested!r} can't compute {field}={getattr(config, field)!r}: use "
                f"{' or '.join(map(repr, supported))}."
            )
    return requested
