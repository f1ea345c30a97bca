"""Dropout (section 5.4) with cheaper random numbers on the CPU and without a stored mask.

On a CPU, random numbers cost a small model a fifth of its training time.
"""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers.utils import is_torchdynamo_compiling


class Dropout(nn.Dropout):
    """`nn.Dropout` that on the CPU draws 16 random bits for each number, not a float."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p in (0, 1) or states.device.type != "cpu" or is_torchdynamo_compiling():
            return super().forward(states)
        return _Drop.apply(states, self.p)


class _Drop(torch.autograd.Function):
    """The backward pass draws the same bits again from the same seed. This takes about 1% of an update's time; stored
    masks would take up to 10% of its memory."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, p: float) -> torch.Tensor:
        ctx.p, ctx.seed = p, int(torch.randint(2**63 - 1, ()))
        return _drop(states, p, ctx.seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _drop(gradient, ctx.p, ctx.seed), None


def _drop(states: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    dropped = round(p * 2**16)  # of the 2^16 values that 16 bits can have
    kept = torch.empty_like(states, memory_format=torch.contiguous_format)
    torch.ge(_random_bits(states, seed), dropped - 2**15, out=kept)
    return kept.mul_(1 / (1 - dropped / 2**16)).mul_(states)


def _random_bits(like: torch.Tensor, seed: int) -> torch.Tensor:
    """16 random bits for each number of a tensor, as integers from -2^15 to 2^15 - 1. One draw makes four of them."""
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64)
    draws.random_(-(2**63), None, generator=torch.Generator().manual_seed(seed))
    return draws.view(torch.int16)[: like.numel()].view(like.shape)
