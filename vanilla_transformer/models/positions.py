"""Position encodings (section 3.5): the paper's, and the base class of all. `position_variants` has the others.

An encoding tells the stack where tokens are. It declares what it acts on, and overrides the method for that:

- `"embeddings"`: `encode` changes the token embeddings, for instance by adding a vector to each;
- `"queries_and_keys"`: `for_attention` returns a `rotation` of queries and keys;
- `"scores"`: `for_attention` returns a `position_bias`, which is added to the attention scores.

Positions come as a tensor of numbers, because beam search keeps several hypotheses in one row of the batch: there a
token's number is not its index.

Shapes: B batch, T tokens, S keys, H heads, D d_model, d width of a head's queries and keys.
"""

from typing import Any, Literal

import torch
from torch import nn
from transformers.utils import is_torchdynamo_compiling


# Devices without float64: Apple's, and the meta device, which stands for any.
WITHOUT_FLOAT64 = ("mps", "meta")
# The attention implementations of the library that add a `position_bias` to the scores. Others would leave it out.
WITH_POSITION_BIAS = ("sdpa", "eager", "flex_attention")


class PositionEncoding(nn.Module):
    """Base class of all position encodings, built once for each stack as `Encoding(config, num_heads, is_causal)`.

    `acts_on` says what the encoding changes. `max_length` is the longest sequence that it can number, `None` for no
    limit. `attn_implementations` lists the attention implementations that it can be computed with, `None` for all; a
    position bias needs one of `WITH_POSITION_BIAS`. A class method `check(config)` may refuse configs.
    """

    acts_on: Literal["nothing", "embeddings", "queries_and_keys", "scores"]
    max_length: int | None = None
    attn_implementations: tuple[str, ...] | None = None

    def reset_parameters(self) -> None:
        """Initialises the parameters, with the functions of `transformers.initialization`."""

    def number(self, embeddings: torch.Tensor, offset: int | torch.Tensor = 0) -> torch.Tensor:
        """Positions [T] of the tokens [B, T, D], the first of which is at `offset`."""
        length = embeddings.shape[1]
        if self.max_length is not None and not is_torchdynamo_compiling() and int(offset) + length > self.max_length:
            raise ValueError(
                f"A sequence of {int(offset) + length} tokens is longer than the {self.max_length} positions of the "
                "model: shorten it (truncation in the tokenizer, max_length in generate) or train with a larger "
                "max_position_embeddings."
            )
        return torch.arange(length, device=embeddings.device) + offset

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

    def __init__(self, config: Any, num_heads: int = 1, is_causal: bool = False):
        super().__init__()
        self.d_model = config.d_model

    @classmethod
    def check(cls, config: Any) -> None:
        if config.d_model % 2:
            raise ValueError(
                f"d_model={config.d_model} is odd, but sinusoids come in pairs of sine and cosine: make it even, or "
                "set position_encoding='learned'."
            )

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
