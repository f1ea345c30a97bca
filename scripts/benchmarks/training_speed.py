"""Measure training on identical batches, beside MarianMT and torch.nn.Transformer of the same size.

    vanilla benchmark train --train_files data/train --preset tiny
    vanilla benchmark train --train_files data/train --preset base --order random --output_dir runs/benchmark
    vanilla benchmark train --train_files data/train --preset base --device cuda --dtype bfloat16 --compile

The model before the Transformer with as many parameters, with Bahdanau's attention and with a fixed context:

    vanilla benchmark train --train_files data/train --preset tiny --max_tokens 1024 --recurrent

An update is forward, loss, backward and Adam. Each system runs in its own process, so that it does not affect the
memory allocation of the others. Tokens are counted on both sides, without padding. "Of the peak" compares the matrix
products that the real tokens need with the speed of large matrix products, measured in the same rounds.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Literal

import numpy as np
import torch
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.cpu.malloc import keep_freed_memory
from vanilla_transformer.models.label_smoothing import IGNORED_LABEL
from vanilla_transformer.scripts.benchmarks.benchmark_corpus import (
    BenchmarkCorpusArguments,
    learn_and_tokenise,
    longest_fitting,
)
from vanilla_transformer.scripts.benchmarks.measuring import (
    RATIO,
    MeasurementArguments,
    conditions,
    gpu_notes,
    seconds_of,
    set_up,
    speed_ratios,
    take_turns,
    worker_process,
)
from vanilla_transformer.scripts.benchmarks.peers import (
    RECURRENT_MODELS,
    Batch,
    LargeProducts,
    Learner,
    configuration,
    make_learner,
    update_flops,
)
from vanilla_transformer.scripts.benchmarks.report import Table, report
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.token_batches import TokenBatchSampler, column_lengths, cut


KEPT = "freed memory kept"
PEAK = "large matrix products"
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
    """Size of the models, and the batches."""

    preset: str = key("tiny", "Size of the models.")
    vocab_size: int = key(10000, "Tokens in the joint BPE vocabulary learned from the corpus.")
    max_tokens: int = key(4096, "Tokens on each side of a batch, padding included.")
    order: Literal["bucketed", "random"] = key("bucketed", "Batches of similar lengths, or of pairs in random order.")
    batches: int = key(4, "Updates of each system in a round.")
    compile: bool = key(False, "Compile the models (torch.compile).")
    recurrent: bool = key(False, "Measure recurrent models of as many parameters too (rnn_search).")

    @property
    def systems(self) -> dict[str, tuple[str, bool]]:
        """What is measured: for each name the model, and whether freed memory is kept."""
        recurrent = {f"{name}, {KEPT}": (name, True) for name in RECURRENT_MODELS} if self.recurrent else {}
        return SYSTEMS | recurrent

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batches < 1:
            raise ValueError(f"--batches {self.batches} must be at least 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        corpus, options = parse_arguments([BenchmarkCorpusArguments, TrainBenchmarkArguments], __doc__, argv)
        report(options, measure(corpus, options))


def measure(corpus: CorpusArguments, options: TrainBenchmarkArguments) -> Iterator[Table]:
    """The table of training speeds."""
    device = set_up(options)
    batches = [dict(batch) for batch in training_batches(corpus, options)]
    large_products = LargeProducts(device, getattr(torch, options.dtype))
    seconds = measure_systems(batches, large_products, options, device)
    peak_flops = large_products.flops / median(seconds.pop(PEAK))

    config = configuration(options.preset, options.vocab_size)
    tokens, flops = sum(map(real_tokens, batches)), sum(update_flops(config, batch) for batch in batches)
    rows = speed_ratios(seconds, "MarianMT")
    for name, times in seconds.items():
        rows[name]["tokens/s"] = tokens / median(times)
        if name in SYSTEMS:  # recurrent models have other matrix products
            rows[name]["of the peak"] = flops / median(times) / peak_flops
    yield Table(
        f"training, {options.preset}, {options.order} batches of {options.max_tokens:,} tokens; "
        + conditions(options, device),
        {"tokens/s": "{:,.0f}", **RATIO, "of the peak": "{:.0%}"},
        rows,
        drawn=["to MarianMT"],
        reference="MarianMT",
        notes=[
            f"The peak of matrix products is {peak_flops / 1e9:,.1f} GFLOP/s. Tokens are counted on both sides, "
            "without padding.",
            f"{KEPT!r}: the setting of this package's trainer on a CPU, see vanilla_transformer/cpu/malloc.py.",
            *gpu_notes(device),
        ],
    )


def measure_systems(
    batches: list[Batch], large_products: LargeProducts, options: TrainBenchmarkArguments, device: torch.device
) -> dict[str, list[float]]:
    """Seconds of each round of each system, and of large matrix products, which take turns with them."""
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(worker_process(start_system, *how, batches, options))
            for name, how in options.systems.items()
        }
        turns: dict[str, Callable[[], float]] = {
            name: partial(run_in_worker, worker) for name, worker in workers.items()
        }
        turns[PEAK] = partial(seconds_of, large_products, device)
        take_turns(turns, rounds=1)  # to warm up: memory, and with --compile the compiler
        return take_turns(turns, options.rounds)


def run_in_worker(worker: ProcessPoolExecutor) -> float:
    return worker.submit(run_updates).result()


# --- in the process of one system ---

timed_updates: Callable[[], float]  # set by `start_system`, once in each process


def start_system(name: str, keeps_memory: bool, batches: list[Batch], options: TrainBenchmarkArguments) -> None:
    """Makes the system that `run_updates` trains in this process."""
    global timed_updates

    device = set_up(options)
    if keeps_memory and device.type == "cpu":
        keep_freed_memory()
    config = configuration(options.preset, options.vocab_size)
    learner = make_learner(name, config, device=device, dtype=options.dtype, compile=options.compile)
    on_device = [{column: tensor.to(device) for column, tensor in batch.items()} for batch in batches]
    timed_updates = partial(seconds_of, partial(train_on, learner, on_device), device)


def run_updates() -> float:
    """Seconds of one update on each batch."""
    return timed_updates()


def train_on(learner: Learner, batches: list[Batch]) -> None:
    for batch in batches:
        learner(batch)


# --- batches ---


def training_batches(corpus: CorpusArguments, options: TrainBenchmarkArguments) -> list[Batch]:
    """The first batches of the corpus in the chosen order, padded."""
    tokenizer, tokens = learn_and_tokenise(corpus, options.vocab_size)
    source, target = column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels")
    longest_fitting(options.max_tokens, source, target)
    if options.order == "bucketed":
        batches = list(TokenBatchSampler(source, target, max_tokens=options.max_tokens))
    else:
        order = np.random.default_rng(0).permutation(len(source))
        sizes = cut(np.maximum(source, target)[order], options.max_tokens)
        batches = [part.tolist() for part in np.split(order, np.cumsum(sizes)[:-1])]
    collator = DataCollatorForSeq2Seq(tokenizer)
    return [collator([tokens[index] for index in indices]) for indices in batches[: options.batches]]


def real_tokens(batch: Batch) -> int:
    """Tokens of both sides, without padding."""
    return int(batch["attention_mask"].sum() + (batch["labels"] != IGNORED_LABEL).sum())


if __name__ == "__main__":
    main()
