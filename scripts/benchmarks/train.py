"""Measure training on identical batches, beside MarianMT and torch.nn.Transformer of the same size.

    vanilla-benchmark train --train_files data/train --preset tiny
    vanilla-benchmark train --train_files data/train --preset base --order random --output_dir runs/benchmark
    vanilla-benchmark train --train_files data/train --preset base --device cuda --dtype bfloat16 --compile

An update is forward, loss, backward and Adam. Each system has a process of its own, in which it alone decides about
memory. Tokens are those of both sides, padding not counted. The share of the
peak is that of the matrix products which real tokens can't do without in the speed of large matrix products, measured
in the same rounds.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

from vanilla_transformer.scripts.benchmarks.benchmark import (
    RATIO,
    MeasurementArguments,
    Table,
    begin,
    compared,
    conditions,
    not_on_gpu,
    process,
    report,
    seconds_of,
    take_turns,
)
from vanilla_transformer.training.arguments import CorpusArguments, errors_as_sentences, key, parse_arguments


KEPT = "freed memory kept"
# The model, and whether freed memory is kept.
SYSTEMS = {
    f"vanilla_transformer, {KEPT}": ("vanilla_transformer", True),
    "vanilla_transformer": ("vanilla_transformer", False),
    "MarianMT": ("MarianMT", False),
    f"MarianMT, {KEPT}": ("MarianMT", True),
    "torch.nn.Transformer": ("torch.nn.Transformer", False),
}


@dataclass
class TrainBenchmarkArguments(MeasurementArguments):
    """What is measured."""

    preset: str = key("tiny", "Size of the models.")
    vocab_size: int = key(10000, "Pieces of the joint BPE learned from the corpus.")
    max_tokens: int = key(4096, "Tokens a side and batch, padding included.")
    order: Literal["bucketed", "random"] = key("bucketed", "Batches of similar lengths, or of pairs as they come.")
    batches: int = key(4, "Updates of each system in a round.")
    compile: bool = key(False, "Compile the models (torch.compile).")

    def __post_init__(self):
        super().__post_init__()
        if self.batches < 1:
            raise ValueError(f"--batches {self.batches} must be at least 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        corpus, options = parse_arguments([CorpusArguments, TrainBenchmarkArguments], __doc__, argv)
        report(options, measure(corpus, options))


def measure(corpus: CorpusArguments, options: TrainBenchmarkArguments) -> Iterator[Table]:
    import torch

    from vanilla_transformer.scripts.benchmarks.peers import LargeProducts, configuration, products_of

    device = begin(options)
    batches = [dict(batch) for batch in training_batches(corpus, options)]
    config = configuration(options.preset, options.vocab_size)
    peak = LargeProducts(device, getattr(torch, options.dtype))
    with ExitStack() as stack:
        systems = {name: stack.enter_context(process(start, *how, batches, options)) for name, how in SYSTEMS.items()}
        turns = {name: lambda each=each: each.submit(train).result() for name, each in systems.items()}
        turns["the peak"] = partial(seconds_of, peak, device)
        take_turns(turns, rounds=1)  # to warm up: memory, and with --compile the compiler
        seconds = take_turns(turns, options.rounds)

    operations_a_second = peak.operations / median(seconds.pop("the peak"))
    tokens, products = sum(map(real_tokens, batches)), sum(products_of(config, batch) for batch in batches)
    rows = compared(seconds, "MarianMT")
    for name, times in seconds.items():
        rows[name]["tokens/s"] = tokens / median(times)
        rows[name]["of the peak"] = products / median(times) / operations_a_second
    yield Table(
        f"training, {options.preset}, {options.order} batches of {options.max_tokens:,} tokens; "
        + conditions(options, device),
        {"tokens/s": "{:,.0f}", **RATIO, "of the peak": "{:.0%}"},
        rows,
        drawn=["to MarianMT"],
        reference="MarianMT",
        notes=[
            f"The peak of matrix products is {operations_a_second / 1e9:,.1f} GFLOP/s. Tokens are those of both "
            "sides, padding not counted.",
            f"{KEPT!r}: as this package's trainer has it on a CPU, see training/memory.py.",
            *not_on_gpu(device),
        ],
    )


# --- in the process of one system ---


def start(name: str, keeps_memory: bool, batches: list[dict], options: TrainBenchmarkArguments) -> None:
    """Makes the learner that all later calls of `train` are about."""
    global work, device

    from vanilla_transformer.scripts.benchmarks.peers import configuration, make_learner
    from vanilla_transformer.training.malloc import keep_freed_memory

    device = begin(options)
    if keeps_memory and device.type == "cpu":
        keep_freed_memory()
    config = configuration(options.preset, options.vocab_size)
    learner = make_learner(name, config, device=device, dtype=options.dtype, compile=options.compile)
    there = [{column: tensor.to(device) for column, tensor in batch.items()} for batch in batches]
    work = partial(train_on, learner, there)


def train() -> float:
    """The time of one update on each batch."""
    return seconds_of(work, device)


def train_on(learner, batches: list[dict]) -> None:
    for batch in batches:
        learner(batch)


# --- batches ---


def training_batches(corpus: CorpusArguments, options: TrainBenchmarkArguments) -> list:
    """The first batches of the corpus in the asked order, padded."""
    import numpy as np
    from transformers import DataCollatorForSeq2Seq

    from vanilla_transformer.scripts.benchmarks.data import learn_and_tokenise, longest_fitting
    from vanilla_transformer.training.batching import Limits, TokenBatchSampler, column_lengths, cut

    tokenizer, tokens = learn_and_tokenise(corpus, options.vocab_size)
    source, target = column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels")
    longest_fitting(options.max_tokens, source, target)
    if options.order == "bucketed":
        chosen = list(TokenBatchSampler(source, target, max_tokens=options.max_tokens))
    else:
        order = np.random.default_rng(0).permutation(len(source))
        sizes = cut(source[order], target[order], Limits(options.max_tokens, options.max_tokens))
        chosen = [part.tolist() for part in np.split(order, np.cumsum(sizes)[:-1])]
    collator = DataCollatorForSeq2Seq(tokenizer)
    return [collator([tokens[index] for index in indices]) for indices in chosen[: options.batches]]


def real_tokens(batch) -> int:
    """Tokens of both sides, padding not counted."""
    from vanilla_transformer.loss import IGNORED_LABEL

    return int(batch["attention_mask"].sum() + (batch["labels"] != IGNORED_LABEL).sum())


if __name__ == "__main__":
    main()
