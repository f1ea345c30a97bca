"""Score functions beside the paper's: how well a query fits a key. One class for each other value of
`config.score_function`.

Shapes: H heads, T queries, S keys, d_k width of one head's queries and keys; `...` is the batch and whatever blocks an
attention pattern makes.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn
from transformers import initialization as init

from .modeling_vanilla_transformer import ScaledDotProduct


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig


class AttentionScore(ScaledDotProduct):
    """Base class of scores that are no multiple of the dot product. They need eager attention.

    `forward` maps queries [..., H, T, d_k] and keys [..., H, S, d_k] to scores [..., H, T, S]. The attention does the
    rest: mask, softmax and values.
    """

    attn_implementations = ("eager",)


class DotProduct(ScaledDotProduct):
    """q k^T, without the scale (Luong et al. 2015)."""

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int, d_k: int):
        super().__init__(config, num_heads, d_k)
        self.scaling = 1.0


class AdditiveScore(AttentionScore):
    """w tanh(q + k) with a learned vector w for each head (Bahdanau et al. 2015).

    The layer's projections of queries and keys are the formula's W_q and W_k. The sum has d_k numbers for each pair of
    query and key, so time and memory are d_k times those of the scores.
    """

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int, d_k: int):
        super().__init__(config, num_heads, d_k)
        self.weight = nn.Parameter(torch.empty(num_heads, d_k))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = self.weight.shape[1] ** -0.5
        init.uniform_(self.weight, -bound, bound)

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])  # [..., H, T, S, d_k]
        return torch.matmul(hidden, self.weight[:, None, :, None]).squeeze(-1)


class GaussianScore(AttentionScore):
    """-|(q - k) w|^2 / 2 with a learned width w for each head: attention as Nadaraya-Watson regression.

    The softmax of these scores weights the values by a Gaussian kernel around the query.
    """

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int, d_k: int):
        super().__init__(config, num_heads, d_k)
        self.d_k = d_k
        self.width = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        # With this width the product q k^T has the same weight as in the scaled dot product.
        init.constant_(self.width, self.d_k**-0.25)

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        squares = query.square().sum(-1)[..., :, None] + key.square().sum(-1)[..., None, :]  # [..., H, T, S]
        distances = squares - 2 * torch.matmul(query, key.transpose(-2, -1))
        return -0.5 * self.width.square()[:, None, None] * distances
