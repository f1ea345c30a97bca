"""Measure how the cost of training grows with batch, length and layers, beside MarianMT.

    vanilla-benchmark growth --preset tiny --output_dir runs/growth
    vanilla-benchmark growth --preset base --max_tokens 2048 4096 8192 --lengths 32 64 --layers 2 4 6

One of the three changes at a time, on random tokens without padding: the tokens of a batch at one length of sentence,
the length of its sentences at one number of tokens, and the layers of each stack. The others stay at --at_tokens,
--at_length and what the preset has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from vanilla_transformer.scripts.benchmarks.benchmark import (
    RATIO,
    MeasurementArguments,
    Table,
    begin,
    compared,
    conditions,
    not_on_gpu,
    report,
    seconds_of,
    take_turns,
)
from vanilla_transformer.training.arguments import errors_as_sentences, key, parse_arguments


OURS, THEIRS = "vanilla_transformer", "MarianMT"


@dataclass
class GrowthBenchmarkArguments(MeasurementArguments):
    """What is measured."""

    preset: str = key("tiny", "Size of the models.")
    vocab_size: int = key(10000, "Pieces of the vocabulary.")
    max_tokens: list[int] = key([512, 1024, 2048, 4096, 8192], "Tokens a side of the batch to compare.")
    lengths: list[int] = key([8, 16, 32, 64, 128], "Lengths of sentence to compare.")
    layers: list[int] = key([1, 2, 4, 8], "Layers of each stack to compare.")
    at_tokens: int = key(2048, "Tokens a side while something else changes.")
    at_length: int = key(32, "Length of sentence while something else changes.")
    rounds: int = key(3, "Rounds.")
    compile: bool = key(False, "Compile the models (torch.compile).")

    def __post_init__(self):
        super().__post_init__()
        for name in ("max_tokens", "lengths", "layers"):
            if not getattr(self, name) or min(getattr(self, name)) < 1:
                raise ValueError(f"--{name} {getattr(self, name)}: give numbers of 1 or more.")
        for name in ("at_tokens", "at_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")
        for longest, fewest in ((self.at_length, min(self.max_tokens)), (max(self.lengths), self.at_tokens)):
            if longest > fewest:
                raise ValueError(
                    f"A sentence of {longest} tokens does not fit in a batch of {fewest}: change one of them."
                )


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([GrowthBenchmarkArguments], __doc__, argv)
        report(options, measure(options), draw_lines)


def measure(options: GrowthBenchmarkArguments) -> Iterator[Table]:
    device = begin(options)
    tokens, length = options.at_tokens, options.at_length
    points = {
        "tokens in the batch": {number: (number, length, {}) for number in options.max_tokens},
        "tokens in a sentence": {number: (tokens, number, {}) for number in options.lengths},
        "layers of each stack": {
            number: (tokens, length, {"encoder_layers": number, "decoder_layers": number}) for number in options.layers
        },
    }
    for axis, values in points.items():
        rows = {f"{number:,}": cost(*point, options, device) for number, point in values.items()}
        yield Table(
            f"{axis}: ms of an update; {options.preset}, {conditions(options, device)}",
            {OURS: "{:,.1f}", THEIRS: "{:,.1f}", **RATIO},
            rows,
            notes=not_on_gpu(device),
        )


def cost(tokens: int, length: int, fields: dict, options: GrowthBenchmarkArguments, device) -> dict:
    """Milliseconds of an update of each system, and how they compare."""
    from vanilla_transformer.scripts.benchmarks.peers import configuration, make_learner, random_batch

    batch = random_batch(tokens, length, options.vocab_size, device)
    config = configuration(options.preset, options.vocab_size, **fields)
    kind = {"device": device, "dtype": options.dtype, "compile": options.compile}
    updates = {name: partial(make_learner(name, config, **kind), batch) for name in (OURS, THEIRS)}
    take_turns(updates, rounds=1)  # to warm up
    turns = {name: partial(seconds_of, update, device) for name, update in updates.items()}
    seconds = take_turns(turns, options.rounds)
    found = {name: 1000 * median(times) for name, times in seconds.items()}
    spreads = {f"{name}, spread": [1000 * min(times), 1000 * max(times)] for name, times in seconds.items()}
    return {**found, **spreads, **compared(seconds, THEIRS)[OURS]}


def draw_lines(tables: list[Table], picture: Path) -> None:
    """A panel for each of the three."""
    from vanilla_transformer.training.plots import Lines, plot_lines

    panels = []
    for table in tables:
        axis = table.title.partition(":")[0]
        places = [int(number.replace(",", "")) for number in table.rows]
        curves = {name: [row[name] for row in table.rows.values()] for name in (OURS, THEIRS)}
        spreads = {name: [tuple(row[f"{name}, spread"]) for row in table.rows.values()] for name in curves}
        panels.append(Lines(axis, "ms of an update", places, curves, spreads))
    plot_lines(panels, picture, title=tables[0].title.partition("; ")[2])


if __name__ == "__main__":
    main()
