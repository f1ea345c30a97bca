"""Position encodings (section 3.5): one class for each value of `config.position_encoding`.

An encoding tells the stack where tokens are. It declares what it acts on, and overrides the method for that:

- `"embeddings"`: `encode` changes the token embeddings, for instance by adding a vector to each;
- `"queries_and_keys"`: `for_attention` returns a `rotation` of queries and keys;
- `"scores"`: `for_attention` returns a `position_bias`, which is added to the attention scores.

Positions come as a tensor of numbers, because beam search keeps several hypotheses in one row of the batch: there a
token's number is not its index. `variants.POSITIONS` has the names.

Shapes: B batch, T tokens, S keys, H heads, D d_model, d width of a head's queries and keys.
"""

import math
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from transformers import initialization as init


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig


# Devices without float64: Apple's, and the meta device, which stands for any.
WITHOUT_FLOAT64 = ("mps", "meta")
# The attention implementations of the library that add a `position_bias` to the scores. Others would leave it out.
WITH_POSITION_BIAS = ("sdpa", "eager", "flex_attention")


class PositionEncoding(nn.Module):
    """Base class of all position encodings, built once for each stack as `Encoding(config, num_heads, is_causal)`.

    `acts_on` says what the encoding changes. `max_length` is the longest sequence that it can number, `None` for no
    limit. `attn_implementations` lists the attention implementations that it can be computed with, `None` for all; a
    position bias needs one of `WITH_POSITION_BIAS`.
    """

    acts_on: Literal["nothing", "embeddings", "queries_and_keys", "scores"]
    max_length: int | None = None
    attn_implementations: tuple[str, ...] | None = None

    def reset_parameters(self) -> None:
        """Initialises the parameters, with the functions of `transformers.initialization`."""

    def encode(self, embeddings: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Returns the embeddings [B, T, D] of tokens at `positions` ([T], or [1] for all tokens at one position)."""
        return embeddings

    def for_attention(self, query_positions: torch.Tensor, key_positions: torch.Tensor | None) -> dict[str, Any]:
        """Returns what self-attention needs to know of the positions, as keyword arguments for it.

        Args:
            query_positions: Positions of the queries, [T] or [1]. New keys have the same.
            key_positions: Positions of all keys, those in the cache included: [S]. Only given where the encoding acts
                on scores.

        Returns:
            `rotation`: cosines and sines for `rotate`. `position_bias`: [1, H, T, S], added to the scores.
        """
        return {}


class AddedPositions(PositionEncoding):
    """Encodings that add a vector to each embedding. `forward` maps positions [T] to vectors [T, D]."""

    acts_on = "embeddings"

    def encode(self, embeddings: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return embeddings + self(positions).to(embeddings.dtype)


class SinusoidalPositions(AddedPositions):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)) and PE(pos, 2i+1) = cos(the same angle): sines and cosines interleaved.

    The vectors are computed when they are needed. So they have no limit and need no table.
    """

    def __init__(self, config: "VanillaTransformerConfig", num_heads: int = 1, is_causal: bool = False):
        super().__init__()
        self.d_model = config.d_model

    def exponents(self, like: torch.Tensor) -> torch.Tensor:
        """The power of 10000 in the wavelength of each sine-cosine pair: 2i/D for i = 0 .. D/2 - 1."""
        return torch.arange(0, self.d_model, 2, dtype=like.dtype, device=like.device) / self.d_model

    def arrange(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        """Joins the two halves, each [T, D/2], into one [T, D]."""
        return torch.stack([sines, cosines], dim=-1).flatten(-2)

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        # In float32 an angle is off by 3e-4 at position 5,000, more than the rounding of activations.
        positions = positions.to(torch.float32 if positions.device.type in WITHOUT_FLOAT64 else torch.float64)  # [T]
        frequencies = torch.pow(10000.0, -self.exponents(like=positions))  # [D/2]
        angles = positions[:, None] * frequencies  # [T, D/2]
        return self.arrange(angles.sin(), angles.cos())


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


def rotate(states: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
    """Rotates each pair of features (i, i + d/2) of queries or keys [B, H, T, d].

    Args:
        states: Queries or keys.
        rotation: Cosines and sines of the angles, each [T, d] or [1, d]; `None` leaves the states as they are.
    """
    if rotation is None:
        return states
    cosines, sines = (part.to(states.dtype) for part in rotation)
    first, second = states.chunk(2, dim=-1)
    return states * cosines + torch.cat([-second, first], dim=-1) * sines
