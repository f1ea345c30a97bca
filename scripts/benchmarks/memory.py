"""Measure the memory of training, beside MarianMT and torch.nn.Transformer of the same size.

    vanilla benchmark memory --preset base --vocab_size 37000
    vanilla benchmark memory --preset big --max_tokens 8192 --length 64

Each system trains in its own process, on a batch of random tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.scripts.benchmarks.measuring import (
    MeasurementArguments,
    conditions,
    gpu_notes,
    in_fresh_process,
    peak_memory,
    set_up,
)
from vanilla_transformer.scripts.benchmarks.peers import MODELS, configuration, make_learner, random_batch
from vanilla_transformer.scripts.benchmarks.report import Table, report


@dataclass
class MemoryBenchmarkArguments(MeasurementArguments):
    """Size of the models and of the batch."""

    preset: str = key("base", "Size of the models.")
    vocab_size: int = key(37000, "Tokens in the vocabulary.")
    max_tokens: int = key(4096, "Tokens on each side of the batch.")
    length: int = key(32, "Tokens in each sentence of the batch.")
    rounds: int = key(2, "Number of updates; from the second on, Adam has its moments.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.length <= self.max_tokens:
            raise ValueError(f"--length {self.length} must lie between 1 and --max_tokens {self.max_tokens}.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([MemoryBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: MemoryBenchmarkArguments) -> Iterator[Table]:
    """The table of peaks."""
    device = set_up(options)
    peaks = {name: in_fresh_process(peak_of_training, name, options) for name in MODELS}
    rows = {name: {"peak": peak / 2**20, "to MarianMT": peak / peaks["MarianMT"]} for name, peak in peaks.items()}
    yield Table(
        f"memory of training, {options.preset}, vocabulary of {options.vocab_size:,}, {options.max_tokens:,} tokens "
        f"on each side; {conditions(options, device)}",
        {"peak": "{:,.0f} MiB", "to MarianMT": "{:.2f}"},
        rows,
        drawn=["peak"],
        reference="MarianMT",
        notes=[
            "Weights, gradients, Adam's moments and activations, without the memory of Python and its libraries.",
            *gpu_notes(device),
        ],
    )


def peak_of_training(name: str, options: MemoryBenchmarkArguments) -> int:
    """Peak bytes of a few updates, beyond the peak of the process before the model was made."""
    device = set_up(options)
    batch = random_batch(options.max_tokens, options.length, options.vocab_size, device)
    before = peak_memory(device)
    learner = make_learner(name, configuration(options.preset, options.vocab_size), device=device, dtype=options.dtype)
    for _ in range(options.rounds):
        learner(batch)
    return peak_memory(device) - before


if __name__ == "__main__":
    main()
