"""Positional encodings (section 3.5): one class for each value of `config.position_encoding`.

Every class turns "`length` tokens, the first of them at `offset`" into the vectors that are added to their embeddings.

Shapes: T tokens, D d_model.
"""

import torch
from torch import nn
from transformers.utils import is_torchdynamo_compiling

from .configuration_vanilla_transformer import VanillaTransformerConfig


class SinusoidalPositions(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)) and PE(pos, 2i+1) = cos(the same angle): sines and cosines interleaved.

    The vectors are computed, not looked up. So they reach as far as any sequence does, there is no table to lose when
    weights are loaded, and the cost is a few thousand sines beside the millions of products of one layer.
    """

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__()
        self.d_model = config.d_model

    def exponents(self, like: torch.Tensor) -> torch.Tensor:
        """The power of 10000 in the wavelength of each sine-cosine pair: 2i/D for i = 0 .. D/2 - 1."""
        return torch.arange(0, self.d_model, 2, dtype=like.dtype, device=like.device) / self.d_model

    def arrange(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        """Puts the two halves, each [T, D/2], into one [T, D]."""
        return torch.stack([sines, cosines], dim=-1).flatten(-2)

    def forward(self, length: int, offset: int | torch.Tensor, device: torch.device) -> torch.Tensor:
        # A float32 angle is off by 3e-4 at position 5,000, more than float32 activations are: angles in float64.
        precise = torch.float32 if device.type == "mps" else torch.float64
        positions = torch.arange(length, dtype=precise, device=device) + offset  # [T]
        frequencies = torch.pow(10000.0, -self.exponents(like=positions))  # [D/2]
        angles = positions[:, None] * frequencies  # [T, D/2]
        return self.arrange(angles.sin(), angles.cos())


class SinusoidalHalvesPositions(SinusoidalPositions):
    """The paper's waves with all sines before all cosines, as MarianMT in transformers arranges them."""

    def arrange(self, sines: torch.Tensor, cosines: torch.Tensor) -> torch.Tensor:
        return torch.cat([sines, cosines], dim=-1)


class SinusoidalTensor2TensorPositions(SinusoidalHalvesPositions):
    """Halves whose wavelengths end exactly at 10000: the exponents are i / (D/2 - 1), as in tensor2tensor's
    `get_timing_signal_1d`, fairseq and Marian."""

    def exponents(self, like: torch.Tensor) -> torch.Tensor:
        half = self.d_model // 2
        return torch.arange(half, dtype=like.dtype, device=like.device) / max(half - 1, 1)


class LearnedPositions(nn.Embedding):
    """One trained vector for each position (Table 3, row E)."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__(config.max_position_embeddings, config.d_model)

    def forward(self, length: int, offset: int | torch.Tensor, device: torch.device) -> torch.Tensor:
        if not is_torchdynamo_compiling() and (end := int(offset) + length) > self.num_embeddings:
            raise ValueError(
                f"A sequence of {end} tokens is longer than the {self.num_embeddings} learned positions: shorten it "
                "(truncation in the tokenizer, max_length in generate) or train with a larger max_position_embeddings."
            )
        return super().forward(torch.arange(length, device=device) + offset)  # [T, D]


POSITIONS: dict[str, type[nn.Module]] = {
    "sinusoidal": SinusoidalPositions,
    "sinusoidal_halves": SinusoidalHalvesPositions,
    "sinusoidal_tensor2tensor": SinusoidalTensor2TensorPositions,
    "learned": LearnedPositions,
}
