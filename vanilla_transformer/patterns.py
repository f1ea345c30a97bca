"""Attention patterns: which keys a query may look at. One class for each value of `config.attention_pattern`.

Patterns are for self-attention. Attention to the source is always full. A pattern from elsewhere is registered with
`PATTERNS["mine"] = MyPattern`.

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


class FullAttention(nn.Module):
    """Every token may attend to all tokens or, where the attention is causal, to itself and those before it.

    Other patterns are subclasses. A pattern is built as `Pattern(config, num_heads)`, once for each self-attention.

    `takes_any_mask` says that `forward` computes full attention under whatever mask it is given. Beam search needs
    that to keep several hypotheses in one row of the batch. `attn_implementations` lists the attention
    implementations that a pattern can use, `None` for all.
    """

    takes_any_mask = True
    attn_implementations: tuple[str, ...] | None = None

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

    def forward(
        self,
        attend: Callable[..., tuple[torch.Tensor, torch.Tensor | None]],
        module: nn.Module,
        hidden_states: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
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
            kwargs: Further arguments of `attend`.

        Returns:
            The output [B, T, H, d_v] and, if `attend` gives them, the attention weights [B, H, T, S].
        """
        return attend(module, query, key, value, attention_mask, **kwargs)


PATTERNS: dict[str, type[FullAttention]] = {"full": FullAttention}
