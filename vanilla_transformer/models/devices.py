"""What depends on the device.

To read the numbers of a GPU, the host waits until everything before them is computed, and then the GPU waits for the
host. So the loss and the searches look only where that costs nothing.

On a CPU, random numbers cost a small model a fifth of its training time, and half precision makes attention slow.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers.utils import is_torchdynamo_compiling


# --- when the host may look at a tensor's numbers ---


FREE_DEVICES = {"cpu"}


def can_look(tensor: torch.Tensor) -> bool:
    """Whether the numbers of a tensor can be read without waiting."""
    return tensor.device.type in FREE_DEVICES


def places_of(marks: torch.Tensor, number: int) -> torch.Tensor:
    """The places [number] of all marks [N], in order, if the host knows their number already."""
    if can_look(marks):
        return marks.nonzero().squeeze(1)
    return marks.to(torch.uint8).argsort(descending=True, stable=True)[:number]


@contextmanager
def without_looking() -> Iterator[None]:
    """Treats the CPU as any other device, to count and test what happens there."""
    FREE_DEVICES.remove("cpu")
    try:
        yield
    finally:
        FREE_DEVICES.add("cpu")


# --- training on a CPU ---


class Dropout(nn.Dropout):
    """Dropout (section 5.4). On a CPU it draws 16 random bits for each number, not a float, and stores no mask."""

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


def without_cpu_autocast(attend: Callable[..., Any]) -> Callable[..., Any]:
    """`attend` in float32 where autocast would run it in half precision on a CPU.

    There, the backward pass of torch's fused attention takes twelve times as long in bfloat16 as in float32.
    """
    if not torch.is_autocast_enabled("cpu"):
        return attend

    def attend_in_float32(
        module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
    ) -> Any:
        if query.device.type != "cpu":
            return attend(module, query, key, value, *args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return attend(module, query.float(), key.float(), value.float(), *args, **kwargs)

    return attend_in_float32
