"""Score functions: how well a query fits a key. One class for each value of `config.score_function`.

A score from elsewhere is registered with `SCORES["mine"] = MyScore`.

Shapes: H heads, T queries, S keys, d_k width of one head's queries and keys; `...` is the batch and whatever blocks an
attention pattern makes.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig


class Score(nn.Module):
    """Base class of all score functions. It is built as `Score(config, num_heads, d_k)`, once for each attention.

    `forward` maps queries [..., H, T, d_k] and keys [..., H, S, d_k] to scores [..., H, T, S]. The attention does the
    rest: mask, softmax and values.

    The library's fused kernels know one score, the dot product times `scaling`. Other scores need eager attention:
    `attn_implementations` lists what can compute a score, `None` for everything.
    """

    scaling: float | None = None
    attn_implementations: tuple[str, ...] | None = ("eager",)

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int, d_k: int):
        super().__init__()

    @classmethod
    def validate(cls, config: "VanillaTransformerConfig") -> None:
        """Raises a `ValueError` for a config that this score does not fit. Runs whenever a config is made."""


class ScaledDotProduct(Score):
    """q k^T / sqrt(d_k) (section 3.2.1).

    If the components of q and k have unit variance, q k^T has variance d_k. Without the scale the softmax saturates
    for wide heads, and its gradient vanishes.
    """

    attn_implementations = None

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int, d_k: int):
        super().__init__(config, num_heads, d_k)
        self.scaling = d_k**-0.5

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return torch.matmul(query, key.transpose(-2, -1)) * self.scaling


SCORES: dict[str, type[Score]] = {"scaled_dot": ScaledDotProduct}
