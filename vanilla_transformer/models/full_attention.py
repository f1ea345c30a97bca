"""Full attention, the paper's pattern, and what every other pattern promises: which keys a query may look at.

Patterns are for self-attention. Attention to the source is always full.

Shapes: B batch, T queries, S keys, H heads, D d_model, d_k and d_v width of one head's keys and values.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig
    from .positions import PositionEncoding


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


class FullAttention(nn.Module):
    """Every token may attend to all tokens or, where the attention is causal, to itself and those before it.

    Other patterns are subclasses. A pattern is built as `Pattern(config, num_heads)`, once for each self-attention.

    `takes_any_mask` says that `forward` computes full attention under whatever mask it is given. Beam search needs
    that to keep several hypotheses in one row of the batch. `attn_implementations` lists the attention
    implementations that a pattern can use, `None` for all. `in_decoder` names the pattern of the decoder, `None` for
    this one. `shares_qk` says that queries and keys have one projection. `config_fields` are the fields of the config
    that belong to the pattern; with another pattern they must keep their defaults.
    """

    takes_any_mask = True
    attn_implementations: tuple[str, ...] | None = None
    in_decoder: str | None = None
    shares_qk = False
    config_fields: tuple[str, ...] = ()

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int):
        super().__init__()

    @classmethod
    def validate(cls, config: "VanillaTransformerConfig") -> None:
        """Raises a `ValueError` for a config that this pattern does not fit. Runs whenever a config is made."""

    @classmethod
    def mask(
        cls,
        config: "VanillaTransformerConfig",
        embeddings: torch.Tensor,
        padding_mask: torch.Tensor | None,
        *,
        is_causal: bool,
        past_key_values: Cache | None = None,
    ) -> Any:
        """Makes the mask that `forward` is given, once for all layers of a stack.

        Args:
            config: The model's configuration. Its attention implementation decides the type of the mask.
            embeddings: What enters the layers [B, T, D], for its shape and type.
            padding_mask: 1 for tokens and 0 for padding [B, S]; `None` for no padding.
            is_causal: Whether tokens see only themselves and those before them.
            past_key_values: The cache of self-attention.
        """
        if is_causal:
            return create_causal_mask(
                config=config,
                inputs_embeds=embeddings,
                attention_mask=padding_mask,
                past_key_values=past_key_values,
            )
        return create_bidirectional_mask(config=config, inputs_embeds=embeddings, attention_mask=padding_mask)

    @classmethod
    def encoder_mask(
        cls,
        config: "VanillaTransformerConfig",
        embeddings: torch.Tensor,
        padding_mask: torch.Tensor | None,
        global_attention_mask: torch.Tensor | None = None,
    ) -> Any:
        """Makes the encoder's mask. Patterns with global tokens override this; others refuse them.

        Args:
            config: The model's configuration.
            embeddings: What enters the layers [B, T, D].
            padding_mask: 1 for tokens and 0 for padding [B, T]; `None` for no padding.
            global_attention_mask: 1 for tokens that attend to all tokens and that all tokens attend to [B, T].
        """
        if global_attention_mask is not None:
            raise ValueError(
                f"attention_pattern={config.attention_pattern!r} has no global tokens: leave out "
                "global_attention_mask, or make the model with attention_pattern='longformer'."
            )
        return cls.mask(config, embeddings, padding_mask, is_causal=False)

    @staticmethod
    def for_attention(
        encoding: "PositionEncoding",
        query_positions: torch.Tensor,
        key_positions: torch.Tensor | None,
        attention_mask: Any,
    ) -> dict[str, Any]:
        """Asks the position encoding what self-attention needs, once for all layers of a stack.

        Args:
            encoding: The stack's position encoding.
            query_positions: Positions of the queries [T].
            key_positions: Positions of all keys [S].
            attention_mask: From `mask`.
        """
        return encoding.for_attention(query_positions, key_positions)

    def forward(
        self,
        attend: Callable[..., tuple[torch.Tensor, torch.Tensor | None]],
        module: nn.Module,
        hidden_states: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        rotation: tuple[torch.Tensor, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Computes the attention.

        Args:
            attend: The library's attention interface: it attends from queries to keys under a mask.
            module: The attention layer, which `attend` wants to know.
            hidden_states: What queries, keys and values were projected from [B, T, D].
            query: [B, H, T, d_k].
            key: [B, H, S, d_k].
            value: [B, H, S, d_v].
            attention_mask: From `mask`.
            rotation: How queries and keys were rotated, for patterns with projections of their own.
            kwargs: Further arguments of `attend`.

        Returns:
            The output [B, T, H, d_v] and, if `attend` gives them, the attention weights [B, H, T, S].
        """
        return without_cpu_autocast(attend)(module, query, key, value, attention_mask, **kwargs)
