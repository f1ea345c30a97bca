"""Table 1 of the paper, measured: what a layer costs, and how far apart it leaves two tokens."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.functional import conv1d, pad

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.layer_costs import D_MODEL, KEPT, SelfAttention, cost, cost_formats
from vanilla_transformer.scripts.explain.panels import Curves, Picture


KERNEL, WINDOW = 4, 32
PATHS = (8, 16, 32, 64)  # lengths for which paths are measured
Layer = Callable[[torch.Tensor], torch.Tensor]  # [1, n, D] -> [1, n, D]


def explain(options: ExplainArguments) -> Explanation:
    """Table 1 of the paper measured: time, memory and path length of four kinds of layers."""
    lengths = options.choose([64, 128, 256, 512, 1024], quick=[32, 64])
    layers = make_layers()
    rows = {f"{n:,}": cost(layers, torch.randn(1, n, D_MODEL), options.rounds) for n in lengths}
    costs = Table(
        f"one layer over n tokens, d_model {D_MODEL}: forward and backward pass",
        cost_formats(layers),
        rows,
        notes=[KEPT],
    )
    distances = options.choose(PATHS, quick=(8, 32))
    steps = make_steps()
    paths = {f"{n:,}": {name: steps_to_connect(step, n) for name, step in steps.items()} for n in distances}
    table = Table(
        "steps, one after the other, until the last of n tokens depends on the first (by its gradient)",
        dict.fromkeys(steps, "{}"),
        paths,
        notes=[f"A step is one layer, and one token for the recurrent layer. Kernel {KERNEL}, window {WINDOW}."],
    )
    panels = [
        *(
            Curves(title, "tokens, n", unit, lengths, {name: column(rows, f"{name}, {unit}") for name in layers}, "xy")
            for title, unit in (("time of a layer", "ms"), ("memory of a layer", "MiB"))
        ),
        Curves("path from first to last", "tokens, n", "steps", distances, dict(columns(paths)), "xy"),
    ]
    return Explanation([costs, table], [Picture("Table 1 of the paper, measured", [panels])])


def columns(rows: dict[str, dict[str, int]]) -> list[tuple[str, list[float]]]:
    return [(name, column(rows, name)) for name in next(iter(rows.values()))]


def column(rows: dict[str, dict], name: str) -> list[float]:
    return [row[name] for row in rows.values()]


# --- time and memory ---


def make_layers() -> dict[str, nn.Module]:
    """The layers of Table 1. Self-attention is there twice: holding all scores, and with SDPA's kernel."""
    return {
        "full, eager": SelfAttention("eager"),
        "full, SDPA": SelfAttention("sdpa"),
        "window": SelfAttention("sdpa", attention_pattern="window", attention_window=WINDOW),
        "recurrent": Recurrent(),
        "convolution": nn.Sequential(Transpose(), nn.Conv1d(D_MODEL, D_MODEL, 3, padding=1), Transpose()),
    }


class Recurrent(nn.GRU):
    def __init__(self) -> None:
        super().__init__(D_MODEL, D_MODEL, batch_first=True)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return super().forward(states)[0]


class Transpose(nn.Module):
    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states.mT


# --- paths ---


def make_steps() -> dict[str, Callable[[int], Layer]]:
    """For each kind of layer: the number of a step -> what it does. Layers are narrow: only their reach matters."""
    full: Any = SelfAttention("eager", d_model=8)
    window: Any = SelfAttention("eager", d_model=8, attention_pattern="window", attention_window=WINDOW)
    cell, inputs = nn.GRUCell(8, 8), torch.randn(1, max(PATHS), 8)

    def recurrent(states: torch.Tensor) -> torch.Tensor:
        """Every state at once reads the one before it."""
        before = pad(states, (0, 0, 1, 0))[0, :-1]
        return cell(inputs[0, : len(before)], before)[None]

    convolution: Any = CausalConvolution(8)
    return {
        "full attention": lambda number: full,
        "window": lambda number: window,
        "recurrent": lambda number: recurrent,
        "convolution": lambda number: convolution,
        "dilated convolution": lambda number: partial(convolution, dilation=KERNEL**number),
    }


class CausalConvolution(nn.Conv1d):
    """A convolution over this token and those before it."""

    def __init__(self, width: int):
        super().__init__(width, width, KERNEL)

    def forward(self, states: torch.Tensor, dilation: int = 1) -> torch.Tensor:
        padded = pad(states.mT, (dilation * (KERNEL - 1), 0))
        return conv1d(padded, self.weight, self.bias, dilation=dilation).mT


def steps_to_connect(step: Callable[[int], Layer], length: int) -> int:
    """Steps until the last of `length` tokens depends on the first: until its gradient is not zero."""
    first = torch.randn(1, length, 8, requires_grad=True)
    states, number = first, 0
    while True:
        states = step(number)(states)
        number += 1
        (gradient,) = torch.autograd.grad(states[0, -1].sum(), first, retain_graph=True)
        if gradient[0, 0].abs().sum() > 0:
            return number
