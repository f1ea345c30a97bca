"""Dropout (section 5.4) with cheaper random numbers on the CPU, where drawing them costs a small model a fifth of its
training time, and with half as many bytes kept for the backward pass."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers.utils import is_torchdynamo_compiling


class Dropout(nn.Dropout):
    """`nn.Dropout`, which on the CPU draws 16 bits for each number in place of a float."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p in (0, 1) or states.device.type != "cpu" or is_torchdynamo_compiling():
            return super().forward(states)
        return _Drop.apply(states, self.p)


class _Drop(torch.autograd.Function):
    """What is kept for the backward pass are the bits, half as large as the numbers that are made of them."""

    @staticmethod
    def forward(ctx, states: torch.Tensor, p: float) -> torch.Tensor:
        bits, ctx.dropped = _random_bits(states), round(p * 2**16)  # of the 2^16 values that 16 bits can have
        ctx.save_for_backward(bits)
        return _drop(states, bits, ctx.dropped)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _drop(gradient, *ctx.saved_tensors, ctx.dropped), None


def _drop(states: torch.Tensor, bits: torch.Tensor, dropped: int) -> torch.Tensor:
    kept = torch.empty_like(states)
    torch.ge(bits, dropped - 2**15, out=kept)
    return kept.mul_(1 / (1 - dropped / 2**16)).mul_(states)


def _random_bits(like: torch.Tensor) -> torch.Tensor:
    """16 random bits, as a number from -2^15 to 2^15 - 1, for each number of a tensor: four from one draw."""
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.int16)[: like.numel()].view(like.shape)
