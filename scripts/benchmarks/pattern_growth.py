"""How the cost of an encoder layer grows with the length of the source, for an attention pattern and full attention.

Full attention is measured with both of its implementations. SDPA's kernel is fast and never holds the matrix of all
scores. Eager attention holds it, as the definition does, and is the one that can return attention weights.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerEncoder
from vanilla_transformer.scripts.benchmarks.measuring import (
    conditions,
    gpu_notes,
    in_fresh_process,
    peak_memory,
    seconds_of,
    set_up,
    take_turns,
)
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.training.reports.plots import Lines, plot_lines


if TYPE_CHECKING:
    from vanilla_transformer.scripts.benchmarks.growth import GrowthBenchmarkArguments


FULL = {"full, SDPA": "sdpa", "full, eager": "eager"}


def measure(options: "GrowthBenchmarkArguments") -> Iterator[Table]:
    """One table: time and memory of a forward and a backward pass for each length."""
    device = set_up(options)
    assert options.attention_pattern is not None
    rows = {f"{length:,}": cost(length, options, device) for length in options.lengths}
    systems = [options.attention_pattern, *FULL]
    yield Table(
        f"tokens in the source: ms and MiB of a forward and a backward pass; one encoder layer, {options.preset}, "
        f"attention_window={options.attention_window}, {conditions(options, device)}",
        {
            **{f"{name}, ms": "{:,.0f}" for name in systems},
            "times as fast": "{:.1f}",
            **{f"{name}, MiB": "{:,.0f}" for name in systems},
            "times less memory": "{:.1f}",
        },
        rows,
        notes=[
            "times as fast: as the faster of the two full attentions. times less memory: than eager full attention.",
            *gpu_notes(device),
        ],
    )


def cost(length: int, options: "GrowthBenchmarkArguments", device: torch.device) -> dict[str, Any]:
    """Milliseconds and memory of each system, and how they compare."""
    systems = configurations(length, options)
    passes = {name: make_pass(name, config, length, device) for name, config in systems.items()}
    take_turns(passes, rounds=1)  # to warm up
    seconds = take_turns({name: partial(seconds_of, run, device) for name, run in passes.items()}, options.rounds)
    del passes
    peaks = {name: in_fresh_process(peak_of_pass, name, config, length, options) for name, config in systems.items()}
    row: dict[str, Any] = {f"{name}, ms": 1000 * median(times) for name, times in seconds.items()}
    row |= {f"{name}, MiB": peak / 2**20 for name, peak in peaks.items()}
    pattern, *full = systems
    if full:
        rounds = zip(seconds[pattern], *(seconds[name] for name in full), strict=True)
        row["times as fast"] = median(min(of_full) / of_pattern for of_pattern, *of_full in rounds)
        row["times less memory"] = peaks["full, eager"] / peaks[pattern]
    return row


def configurations(length: int, options: "GrowthBenchmarkArguments") -> dict[str, VanillaTransformerConfig]:
    """The systems: the pattern and, up to a length, full attention."""
    assert options.attention_pattern is not None
    sizes = {"vocab_size": options.vocab_size, "encoder_layers": 1, "max_position_embeddings": max(options.lengths)}
    fields: dict[str, Any] = {"attention_pattern": options.attention_pattern}
    if "attention_window" in options.fields_of_pattern:
        fields["attention_window"] = options.attention_window
    make = partial(VanillaTransformerConfig.from_preset, options.preset, **sizes)
    systems = {options.attention_pattern: make(**fields)}
    return systems | ({name: make() for name in FULL} if length <= options.full_up_to else {})


def make_pass(name: str, config: VanillaTransformerConfig, length: int, device: torch.device) -> Callable[[], None]:
    """A forward and a backward pass of the encoder over one random text."""
    encoder = VanillaTransformerEncoder(config).to(device).train()
    encoder.set_attn_implementation(FULL.get(name, "sdpa"))
    ids = torch.randint(4, config.vocab_size, (1, length), device=device)

    def run() -> None:
        encoder(ids).last_hidden_state.sum().backward()

    return run


def peak_of_pass(name: str, config: VanillaTransformerConfig, length: int, options: "GrowthBenchmarkArguments") -> int:
    """Peak bytes of a forward and a backward pass, beyond those of the process with the model."""
    device = set_up(options)
    run = make_pass(name, config, length, device)
    before = peak_memory(device)
    run()
    return peak_memory(device) - before


def draw_times(tables: list[Table], picture: Path) -> None:
    """Time over length; full attention ends where it was no longer measured."""
    (table,) = tables
    points = [int(length.replace(",", "")) for length in table.rows]
    columns = [column for column in table.formats if column.endswith(", ms")]
    curves = {name: [row.get(name, float("nan")) for row in table.rows.values()] for name in columns}
    spreads = {name: [(value, value) for value in values] for name, values in curves.items()}
    plot_lines([Lines("tokens in the source", "ms", points, curves, spreads)], picture, title="one encoder layer")
