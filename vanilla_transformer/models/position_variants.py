"""Position encodings beside the paper's: one class for each other value of `config.position_encoding`.

Shapes: B batch, T tokens, S keys, H heads, D d_model, d width of a head's queries and keys.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import initialization as init

from .positions import WITH_POSITION_BIAS, AddedPositions, PositionEncoding, SinusoidalPositions


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig


class SinusoidalHalvesPositions(SinusoidalPositions):
    """The paper's waves with all sines before all cosines, as in transformers' MarianMT."""

    def arrange(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        return torch.cat([sines, cosines], dim=-1)


class SinusoidalTensor2TensorPositions(SinusoidalHalvesPositions):
    """Halves with the exponents i / (D/2 - 1), so that the longest wavelength is exactly 10000 * 2 pi: tensor2tensor's
    `get_timing_signal_1d`, fairseq and Marian."""

    def exponents(self, like: torch.Tensor) -> torch.Tensor:
        half = self.d_model // 2
        return torch.arange(half, dtype=like.dtype, device=like.device) / max(half - 1, 1)


class SinusoidalFairseqPositions(SinusoidalTensor2TensorPositions):
    """tensor2tensor's waves with the first token at position `pad_token_id` + 1, which is 2 in fairseq's models."""

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int = 1, is_causal: bool = False):
        super().__init__(config, num_heads, is_causal)
        self.first = int(config.pad_token_id or 0) + 1

    @classmethod
    def check(cls, config: "VanillaTransformerConfig") -> None:
        super().check(config)
        if config.pad_token_id is None:
            raise ValueError(
                "position_encoding='sinusoidal_fairseq' counts positions from pad_token_id + 1: set pad_token_id."
            )

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return super().forward(positions + self.first)


class LearnedPositions(nn.Embedding, AddedPositions):
    """One trained vector for each position (Table 3, row E)."""

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int = 1, is_causal: bool = False):
        super().__init__(config.max_position_embeddings, config.d_model)
        self.max_length = config.max_position_embeddings


class IntegerPositions(AddedPositions):
    """Adds the position itself to every feature. The counter-example: the numbers soon outgrow the embeddings."""

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int = 1, is_causal: bool = False):
        super().__init__()
        self.d_model = config.d_model

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return positions[:, None].expand(-1, self.d_model)


class ConcatenatedPositions(SinusoidalPositions):
    """Concatenates embedding and sinusoids, [B, T, 2D], and projects them back to [B, T, D]."""

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int = 1, is_causal: bool = False):
        super().__init__(config)
        self.projection = nn.Linear(2 * config.d_model, config.d_model)

    def encode(self, embeddings: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        vectors = self(positions).to(embeddings.dtype).expand(*embeddings.shape[:-1], -1)
        return self.projection(torch.cat([embeddings, vectors], dim=-1))


class NoPositions(PositionEncoding):
    """No position encoding: the encoder sees a bag of tokens, the decoder only how many came before."""

    acts_on = "nothing"

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int = 1, is_causal: bool = False):
        super().__init__()


class RotaryPositions(PositionEncoding):
    """Rotates pairs of query and key features by angles that grow with the position (Su et al. 2021, RoFormer).

    The product of a rotated query and a rotated key depends only on their distance. The pairs are (i, i + d/2), as in
    transformers' Llama.
    """

    acts_on = "queries_and_keys"

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int = 1, is_causal: bool = False):
        super().__init__()
        self.d_k = config.d_k or config.d_model // num_heads

    @classmethod
    def check(cls, config: "VanillaTransformerConfig") -> None:
        for heads in (config.encoder_attention_heads, config.decoder_attention_heads):
            if (d_k := config.d_k or config.d_model // heads) % 2:
                raise ValueError(
                    f"d_k={d_k} is odd, but rotary positions rotate pairs of features: choose an even width of heads."
                )

    def for_attention(self, query_positions: torch.Tensor, key_positions: torch.Tensor | None) -> dict[str, Any]:
        exponents = torch.arange(0, self.d_k, 2, dtype=torch.float32, device=query_positions.device) / self.d_k
        angles = query_positions[:, None] * torch.pow(10000.0, -exponents)  # [T, d/2]
        angles = torch.cat([angles, angles], dim=-1)
        return {"rotation": (angles.cos(), angles.sin())}


class RelativePositions(PositionEncoding):
    """A learned bias for each head and distance, shared by all layers of a stack (Raffel et al. 2020, T5).

    Distances are put into `relative_attention_num_buckets` buckets: half of them for one distance each, the others
    logarithmically wider up to `relative_attention_max_distance`. The encoder has buckets for both directions.
    """

    acts_on = "scores"
    attn_implementations = WITH_POSITION_BIAS

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int = 1, is_causal: bool = False):
        super().__init__()
        self.is_causal, self.max_distance = is_causal, config.relative_attention_max_distance
        self.initial_deviation = config.d_model**-0.5
        self.bias = nn.Parameter(torch.empty(config.relative_attention_num_buckets, num_heads))
        self.reset_parameters()

    @classmethod
    def check(cls, config: "VanillaTransformerConfig") -> None:
        buckets, furthest = config.relative_attention_num_buckets, config.relative_attention_max_distance
        if buckets < 4 or buckets % 4:
            raise ValueError(f"relative_attention_num_buckets={buckets} must be a positive multiple of 4.")
        if furthest <= buckets // 2:
            raise ValueError(
                f"relative_attention_max_distance={furthest} must be greater than {buckets // 2}, the distances that "
                "have a bucket of their own."
            )

    def reset_parameters(self) -> None:
        init.normal_(self.bias, std=self.initial_deviation)

    def for_attention(self, query_positions: torch.Tensor, key_positions: torch.Tensor | None) -> dict[str, Any]:
        buckets = self._bucket(key_positions - query_positions[:, None])  # [T, S]
        return {"position_bias": self.bias[buckets].permute(2, 0, 1)[None]}  # [1, H, T, S]

    def _bucket(self, offsets: torch.Tensor) -> torch.Tensor:
        """The bucket of each offset, key position minus query position."""
        buckets = len(self.bias)
        first = torch.zeros_like(offsets)
        if self.is_causal:
            distances = (-offsets).clamp(min=0)
        else:
            buckets //= 2
            first = (offsets > 0) * buckets  # keys after the query have the second half
            distances = offsets.abs()
        single = buckets // 2
        ratio = torch.log(distances.clamp(min=1).float() / single) / math.log(self.max_distance / single)
        logarithmic = (single + (ratio * (buckets - single)).long()).clamp(max=buckets - 1)
        return first + torch.where(distances < single, distances, logarithmic)
