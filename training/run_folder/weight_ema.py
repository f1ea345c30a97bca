"""The exponential moving average of the weights, an alternative to the average of checkpoints."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import TrainerCallback


FILE = "ema.safetensors"


class ExponentialMovingAverage(TrainerCallback):
    """Keeps decay * average + (1 - decay) * weights, computed after every update.

    Args:
        decay: Share of the average that one update keeps; 0.999 averages over about the last thousand updates.
    """

    def __init__(self, decay: float):
        if not 0 < decay < 1:
            raise ValueError(f"ema_decay={decay} must lie between 0 and 1; 0.999 is usual.")
        self._update = get_ema_multi_avg_fn(decay)
        self.state: dict[str, torch.Tensor] = {}

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module | None = None, **kwargs: Any
    ) -> None:
        if not self.state and model is not None:
            self.state = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: torch.nn.Module | None = None, **kwargs: Any
    ) -> None:
        assert model is not None  # the trainer passes it
        parameters = dict(model.named_parameters())
        self._update(list(self.state.values()), [parameters[name].detach() for name in self.state], None)

    def save(self, folder: Path) -> None:
        """Writes the average into a checkpoint."""
        save_file({name: tensor.contiguous() for name, tensor in self.state.items()}, folder / FILE)

    def load(self, folder: Path, device: torch.device) -> None:
        """Reads the average from a checkpoint."""
        if not (folder / FILE).is_file():
            raise ValueError(f"{folder} has no moving average ({FILE}): it was trained without ema_decay.")
        self.state = load_file(folder / FILE, device=str(device))
