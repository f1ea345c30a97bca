"""Measure the memory of training, beside MarianMT and torch.nn.Transformer of the same size.

    vanilla-benchmark memory --preset base --vocab_size 37000
    vanilla-benchmark memory --preset big --max_tokens 8192 --length 64

Each system makes its updates in a process of its own, on a batch of random tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from vanilla_transformer.scripts.benchmarks.benchmark import (
    MeasurementArguments,
    Table,
    begin,
    conditions,
    in_fresh_process,
    not_on_gpu,
    peak_memory,
    report,
)
from vanilla_transformer.training.arguments import errors_as_sentences, key, parse_arguments


@dataclass
class MemoryBenchmarkArguments(MeasurementArguments):
    """What is measured."""

    preset: str = key("base", "Size of the models.")
    vocab_size: int = key(37000, "Pieces of the vocabulary.")
    max_tokens: int = key(4096, "Tokens a side of the batch.")
    length: int = key(32, "Tokens of each sentence in it.")
    rounds: int = key(2, "Updates; from the second on Adam has its moments.")

    def __post_init__(self):
        super().__post_init__()
        if not 1 <= self.length <= self.max_tokens:
            raise ValueError(f"--length {self.length} must lie between 1 and --max_tokens {self.max_tokens}.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([MemoryBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: MemoryBenchmarkArguments) -> Iterator[Table]:
    from vanilla_transformer.scripts.benchmarks.peers import MODELS

    device = begin(options)
    peaks = {name: in_fresh_process(peak_of_training, name, options) for name in MODELS}
    rows = {name: {"peak": peak / 2**20, "to MarianMT": peak / peaks["MarianMT"]} for name, peak in peaks.items()}
    yield Table(
        f"memory of training, {options.preset}, {options.vocab_size:,} pieces, {options.max_tokens:,} tokens a side; "
        + conditions(options, device),
        {"peak": "{:,.0f} MiB", "to MarianMT": "{:.2f}"},
        rows,
        drawn=["peak"],
        reference="MarianMT",
        notes=[
            "Weights, gradients, Adam's moments and activations; not what Python and its libraries take themselves.",
            *not_on_gpu(device),
        ],
    )


def peak_of_training(name: str, options: MemoryBenchmarkArguments) -> int:
    """Bytes beyond what the process took before there was a model."""
    from vanilla_transformer.scripts.benchmarks.peers import configuration, make_learner, random_batch

    device = begin(options)
    batch = random_batch(options.max_tokens, options.length, options.vocab_size, device)
    before = peak_memory(device)
    learner = make_learner(name, configuration(options.preset, options.vocab_size), device=device, dtype=options.dtype)
    for _ in range(options.rounds):
        learner(batch)
    return peak_memory(device) - before


if __name__ == "__main__":
    main()
