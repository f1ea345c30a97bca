"""The paper's learning rate (section 5.3): d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), steps counted from 1."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def peak_rate(d_model: int, warmup_steps: int) -> float:
    """Returns the highest rate, at the end of the warm-up."""
    _require_warmup(warmup_steps)
    return (d_model * warmup_steps) ** -0.5


def share_of_peak(step: int, warmup_steps: int) -> float:
    """Returns the rate of a step, counted from 1, as a share of the peak: linear rise, then inverse square root."""
    return min(step / warmup_steps, math.sqrt(warmup_steps / step))


def inverse_sqrt_schedule(optimizer: Optimizer, warmup_steps: int) -> LambdaLR:
    """Returns the paper's schedule with the optimizer's learning rate as its peak.

    The library's `get_scheduler("inverse_sqrt")` counts from 0, so its first update has a rate of zero.
    """
    _require_warmup(warmup_steps)
    return LambdaLR(optimizer, lambda updates: share_of_peak(updates + 1, warmup_steps))


def _require_warmup(warmup_steps: int) -> None:
    if warmup_steps < 1:
        raise ValueError(f"warmup_steps={warmup_steps}: the inverse square root needs at least one step of warm-up.")
