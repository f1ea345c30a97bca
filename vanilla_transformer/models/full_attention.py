"""Full attention, the paper's (section 3.2.1): the formula, its masks, and what runs it fast on a CPU.

Shapes: B batch, T queries, S keys, H heads, D d_model, d_k and d_v width of one head's keys and values.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .host_waits import can_look


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention(Q, K, V) = softmax(score(Q, K)) V (section 3.2.1); the mask adds -inf to the scores of hidden keys.

    The layer's score function computes the scores, `scaling` included.
    """
    scores = module.score(query, key)  # [B, H, T, S]
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights, value)  # [B, H, T, d_v]
    return output.transpose(1, 2).contiguous(), weights  # [B, T, H, d_v]


def full_attention_mask(
    config: "VanillaTransformerConfig",
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
    config: "VanillaTransformerConfig",
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


def without_cpu_autocast(attend: Callable[..., Any]) -> Callable[..., Any]:
    """`attend` in float32 where autocast would run it in half precision on a CPU.

    There, the backward pass of torch's fused attention takes twelve times as long in bfloat16 as in float32.
    """
    if not torch.is_autocast_enabled("cpu"):
        return attend

    def attend_in_float32(
        module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        if query.device.type != "cpu":
            return attend(module, query, key, value, *args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return attend(module, query.float(), key.float(), value.float(), *args, **kwargs)

    return attend_in_float32
