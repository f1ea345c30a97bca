"""Measure how the cost of training grows with batch, length and layers, beside MarianMT.

    vanilla benchmark growth --preset tiny --output_dir runs/growth
    vanilla benchmark growth --preset base --max_tokens 2048 4096 8192 --lengths 32 64 --layers 2 4 6
    vanilla benchmark growth --attention_pattern window

One of three sizes changes at a time, on random tokens without padding: the tokens of a batch, the length of its
sentences, and the layers of each stack. The other sizes stay at --at_tokens, --at_length and the preset's layers.

With --attention_pattern the length of one long text changes, from 2,048 to 32,768 tokens. Time and memory of an
encoder layer with that pattern are measured beside those of full attention.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.attention_variants import PATTERNS
from vanilla_transformer.scripts.benchmarks import pattern_growth
from vanilla_transformer.scripts.benchmarks.measuring import (
    RATIO,
    MeasurementArguments,
    conditions,
    gpu_notes,
    seconds_of,
    set_up,
    speed_ratios,
    take_turns,
)
from vanilla_transformer.scripts.benchmarks.peers import configuration, make_learner, random_batch
from vanilla_transformer.scripts.benchmarks.report import Table, report
from vanilla_transformer.training.reports.plots import Lines, plot_lines


OURS, THEIRS = "vanilla_transformer", "MarianMT"
LONG = [2048, 4096, 8192, 16384, 32768]


@dataclass
class GrowthBenchmarkArguments(MeasurementArguments):
    """The sizes to compare."""

    preset: str = key("tiny", "Size of the models.")
    vocab_size: int = key(10000, "Tokens in the vocabulary.")
    max_tokens: list[int] = key([512, 1024, 2048, 4096, 8192], "Tokens on each side of the batch, to compare.")
    lengths: list[int] = key(
        [], "Sentence lengths to compare; default: 8 to 128, or 2,048 to 32,768 with --attention_pattern."
    )
    layers: list[int] = key([1, 2, 4, 8], "Layers of each stack, to compare.")
    at_tokens: int = key(2048, "Tokens on each side while another size changes.")
    at_length: int = key(32, "Sentence length while another size changes.")
    rounds: int = key(3, "Number of rounds.")
    compile: bool = key(False, "Compile the models (torch.compile).")
    attention_pattern: str | None = key(None, "Compare this pattern with full attention: window, longformer or lsh.")
    attention_window: int = key(256, "With --attention_pattern: the window.")
    full_up_to: int = key(8192, "With --attention_pattern: the longest text that full attention reads.")

    @property
    def fields_of_pattern(self) -> tuple[str, ...]:
        """The config fields that belong to the pattern."""
        return () if self.attention_pattern is None else PATTERNS[self.attention_pattern].config_fields

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention_pattern not in (None, *PATTERNS):
            raise ValueError(
                f"--attention_pattern {self.attention_pattern} is unknown: choose one of {', '.join(PATTERNS)}."
            )
        if not self.lengths:
            self.lengths = [8, 16, 32, 64, 128] if self.attention_pattern is None else LONG
        for name in ("max_tokens", "lengths", "layers"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"--{name} {getattr(self, name)}: give numbers of 1 or more.")
        for name in ("at_tokens", "at_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")
        if self.attention_pattern is not None:
            return
        for longest, fewest in ((self.at_length, min(self.max_tokens)), (max(self.lengths), self.at_tokens)):
            if longest > fewest:
                raise ValueError(
                    f"A sentence of {longest} tokens does not fit in a batch of {fewest}: change one of them."
                )


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([GrowthBenchmarkArguments], __doc__, argv)
        if options.attention_pattern is None:
            report(options, measure(options), draw_lines)
        else:
            report(options, pattern_growth.measure(options), pattern_growth.draw_times)


def measure(options: GrowthBenchmarkArguments) -> Iterator[Table]:
    """One table for each size that changes."""
    device = set_up(options)
    tokens, length = options.at_tokens, options.at_length
    axes: dict[str, dict[int, tuple[int, int, dict[str, int]]]] = {
        "tokens in the batch": {number: (number, length, {}) for number in options.max_tokens},
        "tokens in a sentence": {number: (tokens, number, {}) for number in options.lengths},
        "layers of each stack": {
            number: (tokens, length, {"encoder_layers": number, "decoder_layers": number}) for number in options.layers
        },
    }
    for axis, points in axes.items():
        rows = {f"{number:,}": cost(*point, options, device) for number, point in points.items()}
        yield Table(
            f"{axis}: ms of an update; {options.preset}, {conditions(options, device)}",
            {OURS: "{:,.1f}", THEIRS: "{:,.1f}", **RATIO},
            rows,
            notes=gpu_notes(device),
        )


def cost(
    tokens: int, length: int, fields: dict[str, int], options: GrowthBenchmarkArguments, device: torch.device
) -> dict[str, Any]:
    """Milliseconds of an update of each system, and their ratio."""
    batch = random_batch(tokens, length, options.vocab_size, device)
    config = configuration(options.preset, options.vocab_size, **fields)
    learners = {
        name: make_learner(name, config, device=device, dtype=options.dtype, compile=options.compile)
        for name in (OURS, THEIRS)
    }
    updates = {name: partial(learner, batch) for name, learner in learners.items()}
    take_turns(updates, rounds=1)  # to warm up
    seconds = take_turns(
        {name: partial(seconds_of, update, device) for name, update in updates.items()}, options.rounds
    )
    milliseconds = {name: 1000 * median(times) for name, times in seconds.items()}
    spreads = {f"{name}, spread": [1000 * min(times), 1000 * max(times)] for name, times in seconds.items()}
    return {**milliseconds, **spreads, **speed_ratios(seconds, THEIRS)[OURS]}


def draw_lines(tables: list[Table], picture: Path) -> None:
    """One panel for each table."""
    panels = []
    for table in tables:
        axis = table.title.partition(":")[0]
        points = [int(number.replace(",", "")) for number in table.rows]
        curves = {name: [row[name] for row in table.rows.values()] for name in (OURS, THEIRS)}
        spreads = {name: [_pair(row[f"{name}, spread"]) for row in table.rows.values()] for name in curves}
        panels.append(Lines(axis, "ms of an update", points, curves, spreads))
    plot_lines(panels, picture, title=tables[0].title.partition("; ")[2])


def _pair(spread: list[float]) -> tuple[float, float]:
    smallest, largest = spread
    return smallest, largest


if __name__ == "__main__":
    main()
