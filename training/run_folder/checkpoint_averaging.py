"""The average of checkpoints (section 6.1: the last 5 of the base model, the last 20 of the big one)."""

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file

from vanilla_transformer.hub.loading import read_object
from vanilla_transformer.training.run_folder.checkpoints import naming_damage


State = dict[str, torch.Tensor]
WEIGHTS = "model.safetensors"


def average(states: Iterable[State]) -> State:
    """Returns the mean of each tensor over states with the same names and shapes. One state is in memory at a time."""
    total: State = {}
    count = 0
    for count, state in enumerate(states, start=1):
        if count == 1:
            total = {name: tensor.to(torch.float64) for name, tensor in state.items()}
            types = {name: tensor.dtype for name, tensor in state.items()}
            continue
        _require_same_tensors(total, state, count)
        for name, tensor in state.items():
            total[name] += tensor
    if not count:
        raise ValueError("There is nothing to average: give at least one checkpoint.")
    return {name: (tensor / count).to(types[name]) for name, tensor in total.items()}


def load_states(paths: Iterable[str | Path]) -> Iterable[State]:
    """Yields the weights of checkpoints. A checkpoint with another architecture than the first is refused."""
    first = None
    for path in map(Path, paths):
        if not (path / WEIGHTS).is_file():
            raise ValueError(f"{path} has no {WEIGHTS}: it is not a checkpoint, or it is incomplete.")
        config = _architecture(path)
        if first is None:
            first = config, path
        for name in sorted(config.keys() | first[0].keys()):
            if config.get(name) != first[0].get(name):
                raise ValueError(
                    f"{path} has {name}={config.get(name)!r} but {first[1]} has {name}={first[0].get(name)!r}: only "
                    "checkpoints of one model can be averaged."
                )
        with naming_damage(path):
            state = load_file(path / WEIGHTS)
        yield state


def _architecture(path: Path) -> dict:
    """Returns the config without the fields that do not describe the weights."""
    config = read_object(path / "config.json")
    return {
        name: value for name, value in config.items() if name not in ("transformers_version", "dtype", "use_cache")
    }


def _require_same_tensors(total: State, state: State, number: int) -> None:
    for name in sorted(total.keys() ^ state.keys()):
        where = "only the first state" if name in total else f"not the first but state {number}"
        raise ValueError(f"{name} is in {where}: only checkpoints of one model can be averaged.")
    for name, tensor in state.items():
        if tensor.shape != total[name].shape:
            raise ValueError(
                f"{name} is {list(tensor.shape)} in state {number} but {list(total[name].shape)} in the first: only "
                "checkpoints of one model can be averaged."
            )
