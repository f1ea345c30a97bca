"""Reversible residual layers: the backward pass computes activations again, from the last layer's output backwards.

Kitaev et al. 2020, "Reformer" (section 3), after Gomez et al. 2017, "The Reversible Residual Network". There are two
streams of states: y1 = x1 + F(x2), y2 = x2 + G(y1). From y1 and y2 follow x2 = y2 - G(y1) and x1 = y1 - F(x2). So only
the last output is kept, and the memory for activations does not grow with the number of layers. The price is one more
forward pass.

Shapes: B batch, T tokens, D d_model.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from .modeling_vanilla_transformer import VanillaTransformerPreNorm


Streams = tuple[torch.Tensor, ...]


class ReversibleNorm(VanillaTransformerPreNorm):
    """Pre-norm on two streams (x1, x2), from which it makes (x2, x1 + Dropout(Sublayer(LayerNorm(x2)))). The streams
    are the halves of the last dimension."""

    in_decoder = "pre"

    def branch(self, hidden_states: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return self.dropout(sublayer(self.norm(hidden_states)))

    def forward(self, hidden_states: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        first, second = hidden_states.chunk(2, dim=-1)
        return torch.cat([second, first + self.branch(second, sublayer)], dim=-1)

    @staticmethod
    def run_encoder(*args: Any, **kwargs: Any) -> torch.Tensor:
        return run_reversibly(*args, **kwargs)


class Unit(NamedTuple):
    """One residual connection of one layer."""

    residual: nn.Module  # has `branch` and, for both streams, `forward`
    sublayer: Callable[[torch.Tensor], torch.Tensor]
    parameters: list[nn.Parameter]


def run_reversibly(
    layers: nn.ModuleList,
    hidden_states: torch.Tensor,
    attention_mask: Any,
    position_arguments: dict[str, Any],
    **kwargs: Any,
) -> torch.Tensor:
    """Runs encoder layers whose residuals are reversible. Both streams start alike; the result is their mean.

    If the hidden states of all layers are asked for, they are kept anyway, and autograd needs no help.

    Args:
        layers: Encoder layers.
        hidden_states: What enters the first layer [B, T, D].
        attention_mask: From the layers' attention.
        position_arguments: What self-attention needs of the position encoding.
        kwargs: Further arguments of the layers.
    """
    streams = torch.cat([hidden_states, hidden_states], dim=-1)  # [B, T, 2D]
    keeps_states = kwargs.get("output_hidden_states", layers[0].self_attn.config.output_hidden_states)
    units = [unit for layer in layers for unit in _units(layer, attention_mask, position_arguments, **kwargs)]
    shared = [tensor for tensor in _tensors(position_arguments) if tensor.requires_grad]
    inputs = [*shared, *(parameter for unit in units for parameter in unit.parameters)]
    needs_gradients = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (streams, *inputs))
    if needs_gradients and not keeps_states:
        streams = _Reversible.apply(streams, units, shared, *inputs)
    else:
        for layer in layers:
            streams = layer(streams, attention_mask, position_arguments, **kwargs)
    first, second = streams.chunk(2, dim=-1)
    return (first + second) / 2


def _units(layer: nn.Module, attention_mask: Any, position_arguments: dict[str, Any], **kwargs: Any) -> Iterator[Unit]:
    def attend(states: torch.Tensor) -> torch.Tensor:
        return layer.self_attn(states, attention_mask=attention_mask, **position_arguments, **kwargs)[0]

    for residual, sublayer, module in (
        (layer.self_attn_residual, attend, layer.self_attn),
        (layer.feed_forward_residual, layer.feed_forward, layer.feed_forward),
    ):
        parameters = [*residual.parameters(), *module.parameters()]
        yield Unit(residual, sublayer, [parameter for parameter in parameters if parameter.requires_grad])


def _tensors(position_arguments: dict[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors among the arguments, some of which are pairs."""
    for value in position_arguments.values():
        yield from (value,) if torch.is_tensor(value) else value


class _Reversible(torch.autograd.Function):
    """Runs the units without keeping what they compute. Parameters are arguments, so that autograd knows of them."""

    @staticmethod
    def forward(
        ctx: Any, streams: torch.Tensor, units: Sequence[Unit], shared: Sequence[torch.Tensor], *inputs: torch.Tensor
    ) -> torch.Tensor:
        ctx.units, ctx.shared, ctx.inputs = units, shared, inputs
        ctx.seeds = draw_seeds(units)
        ctx.autocast = _autocast(streams.device.type)
        for (residual, sublayer, _), seed in zip(units, ctx.seeds, strict=True):
            with seeded(seed, streams.device):
                streams = residual(streams, sublayer)
        ctx.save_for_backward(streams)
        return streams

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (streams,) = ctx.saved_tensors
        states, gradients = streams.chunk(2, dim=-1), gradient.chunk(2, dim=-1)
        # Made before anything else: small tensors that stay, made among large ones that go, would break up the memory.
        sums = {id(tensor): torch.zeros_like(tensor) for tensor in ctx.inputs}
        for unit, seed in zip(reversed(ctx.units), reversed(ctx.seeds), strict=True):
            with seeded(seed, streams.device), torch.enable_grad(), torch.autocast(**ctx.autocast):
                states, gradients, of_inputs = _undo(unit, states, gradients, ctx.shared)
            for tensor, of_tensor in of_inputs:
                sums[id(tensor)].add_(of_tensor)
        return torch.cat(gradients, dim=-1), None, None, *(sums[id(tensor)] for tensor in ctx.inputs)


def _undo(
    unit: Unit, outputs: Streams, gradients: Streams, shared: Sequence[torch.Tensor]
) -> tuple[Streams, Streams, Iterable[tuple[torch.Tensor, torch.Tensor]]]:
    """The inputs of a unit from its outputs, their gradients from those of the outputs, and those of other tensors."""
    second, changed = outputs  # the residual has swapped the streams
    second = second.detach().requires_grad_()
    branch = unit.residual.branch(second, unit.sublayer)
    first = changed - branch.detach()
    tensors = [second, *shared, *unit.parameters]
    found = torch.autograd.grad(branch, tensors, gradients[1], allow_unused=True)
    of_second = gradients[0] if found[0] is None else gradients[0] + found[0]
    others = zip(tensors[1:], found[1:], strict=True)
    return (first, second.detach()), (gradients[1], of_second), [pair for pair in others if pair[1] is not None]


def _autocast(device_type: str) -> dict[str, Any]:
    """The state of autocast, which the backward pass does not have by itself."""
    return {
        "device_type": device_type,
        "dtype": torch.get_autocast_dtype(device_type),
        "enabled": torch.is_autocast_enabled(device_type),
    }


def draw_seeds(units: Sequence[Unit]) -> list[int]:
    """A seed for the dropout of each unit."""
    return torch.randint(2**63 - 1, (len(units),)).tolist()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, random numbers follow from the seed: a unit that is run again drops what it dropped before."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type="cuda" if device.type == "cpu" else device.type):
        torch.manual_seed(seed)
        yield
