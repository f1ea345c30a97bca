"""Dropout (section 5.4) with cheaper random numbers on the CPU, where drawing them costs a small model a fifth of its
training time."""

import torch
from torch import nn
from transformers.utils import is_torchdynamo_compiling


class Dropout(nn.Dropout):
    """`nn.Dropout`, which on the CPU draws 16 bits for each number in place of a float."""

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p in (0, 1) or states.device.type != "cpu" or is_torchdynamo_compiling():
            return super().forward(states)
        dropped = round(self.p * 2**16)  # of the 2^16 values that 16 bits can have
        kept = torch.empty_like(states, requires_grad=False)
        torch.ge(_random_bits(states), dropped - 2**15, out=kept)
        return states * kept.mul_(1 / (1 - dropped / 2**16))


def _random_bits(like: torch.Tensor) -> torch.Tensor:
    """16 random bits, as a number from -2^15 to 2^15 - 1, for each number of a tensor: four from one draw."""
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.int16)[: like.numel()].view(like.shape)
