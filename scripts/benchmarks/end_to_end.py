"""Measure training end to end, beside the library's own trainer.

    vanilla-benchmark end_to_end --train_files data/train --preset tiny --max_tokens 4096
    vanilla-benchmark end_to_end --train_files data/train --preset base --pairs 0 --rounds 3

Ours is what `vanilla-train` does: `TranslationTrainer`, token batches. Beside it a stock `Seq2SeqTrainer` trains a
MarianMT of the same size on `DataCollatorForSeq2Seq` and batches of a fixed number of pairs in random order. Both see
the same pairs once, in the same pieces, with a smoothing of 0.1, gradients clipped at a norm of 1, and a log.

A batch is padded to its longest pair, so the one which the longest pair of all falls into decides what memory a fixed
number of pairs needs. That number is therefore max_tokens divided by the length of the longest pair. MarianMT still
takes more memory for as many tokens, since it holds all logits: --batch_size sets the number at which both take the
same.

The time is that of making the trainer and of `trainer.train()`, batches, logging, optimiser and clipping included.
Reading and tokenising come before, once for both, and are shown. Each round runs in a process of its own, which gives
the peak of memory too. With several GPUs one is used.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from vanilla_transformer.scripts.benchmarks.benchmark import (
    RATIO,
    MeasurementArguments,
    Table,
    begin,
    compared,
    conditions,
    in_fresh_process,
    not_on_gpu,
    peak_memory,
    report,
    seconds_of,
    take_turns,
)
from vanilla_transformer.training.arguments import (
    CorpusArguments,
    ModelArguments,
    errors_as_sentences,
    key,
    parse_arguments,
)


if TYPE_CHECKING:
    from transformers import Seq2SeqTrainer


OURS, THEIRS = "vanilla_transformer, training/train.py", "MarianMT, Seq2SeqTrainer"
PAIRS, TOKENIZER = "pairs", "tokenizer"  # in the folder that both train from


@dataclass
class EndToEndBenchmarkArguments(MeasurementArguments):
    """What is measured."""

    preset: str = key("tiny", "Size of the models.")
    vocab_size: int = key(10000, "Pieces of the joint BPE learned from the corpus.")
    max_tokens: int = key(4096, "Tokens a side and batch, padding included.")
    pairs: int = key(4000, "Pairs of the corpus, drawn at random, to train on once; 0 for all of them.")
    batch_size: int = key(0, "Pairs in a batch of the stock trainer; 0 for max_tokens by the longest pair.")
    logging_steps: int = key(10, "Updates between two lines of the log.")
    compile: bool = key(False, "Compile the models (torch.compile).")
    rounds: int = key(3, "Rounds.")

    def __post_init__(self):
        super().__post_init__()
        for name in ("pairs", "batch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name} {getattr(self, name)} must not be negative.")
        if ":" in (self.device or ""):
            number = self.device.partition(":")[2]
            raise ValueError(
                f"--device {self.device}: a trainer takes the first GPU it sees. Give --device cuda, and "
                f"CUDA_VISIBLE_DEVICES={number} before the command."
            )


class Prepared(NamedTuple):
    """What both train on."""

    folder: str
    pairs: int
    tokens: int  # of both sides
    batch_size: int  # of the stock trainer
    longest: int


class Trained(NamedTuple):
    """One run."""

    seconds: float
    peak: int
    updates: int


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        corpus, options = parse_arguments([CorpusArguments, EndToEndBenchmarkArguments], __doc__, argv)
        report(options, measure(corpus, options))


def measure(corpus: CorpusArguments, options: EndToEndBenchmarkArguments) -> Iterator[Table]:
    device = begin(options)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        prepared = prepare(corpus, options, folder)
        preparation = time.perf_counter() - start
        turns = {name: partial(in_fresh_process, train_once, name, prepared, options) for name in TRAINERS}
        runs = take_turns(turns, options.rounds)
    rows = compared({name: [run.seconds for run in each] for name, each in runs.items()}, THEIRS)
    for name, each in runs.items():
        rows[name]["tokens/s"] = prepared.tokens / median(run.seconds for run in each)
        rows[name]["updates"] = each[0].updates
        rows[name]["peak memory"] = median(run.peak for run in each) / 2**20
    yield Table(
        f"training end to end, {options.preset}, {prepared.pairs:,} pairs once; {conditions(options, device)}",
        {"tokens/s": "{:,.0f}", **RATIO, "updates": "{:,}", "peak memory": "{:,.0f} MiB"},
        rows,
        drawn=["to MarianMT"],
        reference=THEIRS,
        notes=[
            f"Ours: batches of at most {options.max_tokens:,} tokens a side. MarianMT: {prepared.batch_size} pairs; "
            f"{options.max_tokens // prepared.longest} padded to the longest of all, {prepared.longest} tokens, reach "
            "that limit.",
            f"{prepared.tokens:,} tokens of both sides, padding not counted, in the time from making the trainer to "
            "its last update: batches, logging, optimiser and clipping included.",
            f"Reading, learning the vocabulary and tokenising took {preparation:.1f} s before, once for both.",
            "The memory is what a run adds to what its process took before there was a model.",
            *not_on_gpu(device),
        ],
    )


def prepare(corpus: CorpusArguments, options: EndToEndBenchmarkArguments, folder: str) -> Prepared:
    """Writes tokenizer and tokenised pairs into a folder, which is all that both trainers then read."""
    from vanilla_transformer.scripts.benchmarks.data import learn_and_tokenise, longest_fitting
    from vanilla_transformer.training.batching import column_lengths

    tokenizer, tokens = learn_and_tokenise(corpus, options.vocab_size)
    if 0 < options.pairs < len(tokens):
        tokens = tokens.shuffle(seed=0).select(range(options.pairs)).flatten_indices()
    source, target = column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels")
    longest = longest_fitting(options.max_tokens, source, target)
    tokenizer.save_pretrained(Path(folder) / TOKENIZER)
    tokens.save_to_disk(Path(folder) / PAIRS)
    # Padded to the longest pair there is, a batch of so many has at most max_tokens a side.
    batch_size = options.batch_size or options.max_tokens // longest
    return Prepared(folder, len(tokens), int(source.sum() + target.sum()), batch_size, longest)


def train_once(name: str, prepared: Prepared, options: EndToEndBenchmarkArguments) -> Trained:
    """One pass over the pairs."""
    from datasets import load_from_disk
    from transformers import AutoTokenizer

    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # a trainer would share batches out over all it sees
    device = begin(options)
    dataset = load_from_disk(Path(prepared.folder) / PAIRS)
    tokenizer = AutoTokenizer.from_pretrained(Path(prepared.folder) / TOKENIZER)
    before = peak_memory(device)
    with tempfile.TemporaryDirectory() as folder:
        common = {
            "output_dir": folder,
            "num_train_epochs": 1,
            "max_grad_norm": 1.0,
            "logging_steps": options.logging_steps,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": device.type == "cpu",
            "bf16": options.dtype == "bfloat16",
            "torch_compile": options.compile,
        }
        make = TRAINERS[name](dataset, tokenizer, prepared, options, common)
        updates = []
        with (Path(folder) / "log").open("w") as log, redirect_stdout(log):
            seconds = seconds_of(lambda: updates.append(make().train().global_step), device)
    return Trained(seconds, peak_memory(device) - before, updates[0])


def our_trainer(dataset, tokenizer, prepared: Prepared, options, common: dict) -> "Callable[[], Seq2SeqTrainer]":
    """What `vanilla-train` makes of a recipe."""
    from vanilla_transformer.training.train import make_model
    from vanilla_transformer.training.trainer import TranslationTrainer
    from vanilla_transformer.training.training_arguments import TranslationTrainingArguments

    args = TranslationTrainingArguments(max_steps=-1, max_tokens=options.max_tokens, **common)
    model = make_model(ModelArguments(preset=options.preset), tokenizer, None)
    return lambda: TranslationTrainer(model, args, tokenizer=tokenizer, train_dataset=dataset)


def stock_trainer(dataset, tokenizer, prepared: Prepared, options, common: dict) -> "Callable[[], Seq2SeqTrainer]":
    """What the library's documentation shows."""
    from transformers import DataCollatorForSeq2Seq, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

    from vanilla_transformer.converters.marian import config_to_marian
    from vanilla_transformer.scripts.benchmarks.peers import SMOOTHING, configuration

    args = Seq2SeqTrainingArguments(
        per_device_train_batch_size=prepared.batch_size, label_smoothing_factor=SMOOTHING, **common
    )
    model = MarianMTModel(config_to_marian(configuration(options.preset, len(tokenizer))))
    return lambda: Seq2SeqTrainer(
        model=model,
        args=args,
        train_dataset=dataset,
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
    )


TRAINERS = {OURS: our_trainer, THEIRS: stock_trainer}


if __name__ == "__main__":
    main()
