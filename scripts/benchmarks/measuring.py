"""Fair measurements: systems that alternate, clocks, processes and memory."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, Literal, TypeVar

import torch

from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.engines.hardware import set_number_of_threads
from vanilla_transformer.hub.loading import find_device
from vanilla_transformer.scripts.benchmarks.report import OutputArguments


T = TypeVar("T")
# Columns of a ratio and its spread, with their formats.
RATIO = {"to MarianMT": "{:.2f}", "spread": "{0[0]:.2f}-{0[1]:.2f}"}


@dataclass
class MeasurementArguments(OutputArguments):
    """Number of rounds, threads, device and type of the measurements."""

    rounds: int = key(5, "Number of rounds.")
    threads: int = key(1, "Threads of torch and of the other engines.")
    device: str | None = key(None, "Device, for example cpu or cuda:1; default: a GPU if there is one.")
    dtype: Literal["float32", "bfloat16"] = key(
        "float32", "Type of the arithmetic: autocast in training, otherwise also the type of the weights."
    )

    def __post_init__(self) -> None:
        for name in ("rounds", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")


def set_up(options: MeasurementArguments) -> torch.device:
    """Sets threads and seed; returns the device to measure on."""
    set_number_of_threads(options.threads)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    return find_device(options.device)


# --- time ---


def take_turns(systems: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """The results of each system in each round. Systems alternate, so that other load on the machine affects all of
    them alike."""
    results: dict[str, list[T]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, system in systems.items():
            results[name].append(system())
    return results


def seconds_of(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds until the work is finished. A GPU works asynchronously, so its own clock is read."""
    if device.type == "cuda":
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        first.record()
        work()
        last.record()
        torch.cuda.synchronize(device)
        return first.elapsed_time(last) / 1000
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def cpu_seconds_of(work: Callable[[], Any]) -> float:
    """Seconds that this process computed for the work: waiting for a busy CPU does not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def speed_ratios(
    seconds: Mapping[str, list[float]], reference: str, column: str = "to MarianMT"
) -> dict[str, dict[str, Any]]:
    """Speed of each system relative to the reference: the median of the ratios within a round, and their range."""
    rows = {}
    for name, times in seconds.items():
        ratios = [of_reference / of_system for of_system, of_reference in zip(times, seconds[reference], strict=True)]
        rows[name] = {column: median(ratios), "spread": [min(ratios), max(ratios)]}
    return rows


# --- processes and memory ---


def worker_process(prepare: Callable[..., None] | None = None, *arguments: Any) -> ProcessPoolExecutor:
    """A process that calls `prepare(*arguments)` once, then runs the submitted functions one after the other."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=prepare, initargs=arguments)


def in_fresh_process(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function in a new process, whose memory nothing else has used."""
    with worker_process() as fresh:
        return fresh.submit(function, *arguments).result()


def peak_memory(device: torch.device | None = None) -> int:
    """Peak memory of this process in bytes: on a GPU that of torch's tensors, otherwise all of it."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would include the memory that the parent had when it started this process
        (kibibytes,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(kibibytes) * 1024
    import resource  # Windows has no such module

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def bytes_kept(forward: Callable[[], Any], parameters: Iterable[torch.Tensor] = ()) -> int:
    """Bytes of the tensors that a forward pass keeps for the backward pass, the same on every machine.

    Args:
        forward: The pass; it returns what the tensors are kept for.
        parameters: Tensors that exist anyway and do not count.
    """
    kept: dict[int, torch.UntypedStorage] = {}

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        output = forward()  # alive until the end, else another tensor could get its memory
    for parameter in parameters:
        kept.pop(parameter.untyped_storage().data_ptr(), None)
    del output
    return sum(storage.nbytes() for storage in kept.values())


# --- titles and notes of tables ---


def conditions(options: MeasurementArguments, device: torch.device) -> str:
    """For titles: what speeds depend on besides the systems."""
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    compiled = ", compiled" if getattr(options, "compile", False) else ""
    return f"{options.dtype}{compiled}, threads: {options.threads}, {hardware}"


def gpu_notes(device: torch.device) -> list[str]:
    """For notes: a warning if there was no GPU."""
    return [] if device.type == "cuda" else ["Not measured on a GPU."]
