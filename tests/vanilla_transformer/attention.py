"""What the tests of attention patterns share: gradients, and the largest tensor of a computation."""

from collections.abc import Callable, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def gradients_of(output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients of a fixed random combination of the outputs; zeros for inputs that have no influence."""
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
    gradients = torch.autograd.grad((output * weights).sum(), inputs, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(inputs, gradients, strict=True)
    ]


class _Sizes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        # The memory behind a tensor: a view that repeats one number takes no room.
        sizes = [
            tensor.untyped_storage().nbytes() // tensor.element_size()
            for tensor in tree_leaves(result)
            if isinstance(tensor, torch.Tensor)
        ]
        self.largest = max([self.largest, *sizes])
        return result


def largest_tensor(compute: Callable[[], torch.Tensor]) -> int:
    """The numbers in the largest tensor of a computation and of its backward pass, if it has one."""
    with _Sizes() as sizes:
        output = compute()
        if output.requires_grad:
            output.sum().backward()
    return sizes.largest
