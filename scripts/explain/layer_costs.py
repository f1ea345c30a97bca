"""Time and memory of single layers."""

from collections.abc import Iterable, Mapping
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.scripts.benchmarks.measuring import bytes_kept, cpu_seconds_of, take_turns


D_MODEL = 128
KEPT = "ms: time of the CPU. MiB: what the forward pass keeps for the backward pass, without the weights."


class SelfAttention(nn.Module):
    """One self-attention of this package, with its mask."""

    def __init__(self, implementation: str, d_model: int = D_MODEL, **fields: Any):
        super().__init__()
        self.config = VanillaTransformerConfig.from_preset("tiny", d_model=d_model, **fields)
        self.config._attn_implementation = implementation
        self.attention = self.config.variant("attention_pattern")(self.config, 4, layer_idx=0)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        mask = self.attention.make_mask(self.config, states, None, is_causal=False)
        return self.attention(states, attention_mask=mask)[0]


def cost_formats(layers: Iterable[str]) -> dict[str, str]:
    """The columns of a table of costs."""
    return {f"{name}, {unit}": "{:,.1f}" for unit in ("ms", "MiB") for name in layers}


def cost(layers: Mapping[str, nn.Module], states: torch.Tensor, rounds: int) -> dict[str, float]:
    """CPU milliseconds of a forward and a backward pass over states [1, n, D] for each layer, and the MiB it keeps."""
    states.requires_grad_()

    def run(layer: nn.Module) -> None:
        layer(states).sum().backward()

    take_turns({name: partial(run, layer) for name, layer in layers.items()}, rounds=1)  # to warm up
    seconds = take_turns(
        {name: partial(cpu_seconds_of, partial(run, layer)) for name, layer in layers.items()}, rounds
    )
    kept = {name: bytes_kept(partial(layer, states), layer.parameters()) for name, layer in layers.items()}
    return {f"{name}, ms": 1000 * median(times) for name, times in seconds.items()} | {
        f"{name}, MiB": size / 2**20 for name, size in kept.items()
    }
