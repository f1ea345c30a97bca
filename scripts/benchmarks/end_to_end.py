"""Measure training end to end, beside the library's Seq2SeqTrainer.

    vanilla benchmark end_to_end --train_files data/train --preset tiny --max_tokens 4096
    vanilla benchmark end_to_end --train_files data/train --preset base --pairs 0 --rounds 3

Our side is what `vanilla train` does: `TranslationTrainer` with token batches. The other side is a stock
`Seq2SeqTrainer` that trains a MarianMT of the same size with `DataCollatorForSeq2Seq`, on batches of a fixed number of
pairs in random order. Both see the same tokenised pairs once, with label smoothing 0.1, gradients clipped at norm 1,
and a log.

A batch is padded to its longest pair. With a fixed number of pairs, the batch with the longest pair of all decides how
much memory is needed. That number is therefore max_tokens divided by the length of the longest pair. MarianMT still
needs more memory for the same number of tokens, because it holds all logits: set --batch_size for equal memory.

The time includes making the trainer and `trainer.train()`: batches, logging, optimizer and clipping. Reading and
tokenising happen before, once for both, and their time is shown in a note. Each round runs in its own process, which
also gives the peak of memory. With several GPUs, one is used.
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
from typing import Any, NamedTuple

from datasets import Dataset, load_from_disk
from transformers import (
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    MarianMTModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.converters.from_and_to_marian import config_to_marian
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
    in_fresh_process,
    peak_memory,
    seconds_of,
    set_up,
    speed_ratios,
    take_turns,
)
from vanilla_transformer.scripts.benchmarks.peers import SMOOTHING, configuration
from vanilla_transformer.scripts.benchmarks.report import Table, report
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.data.token_batches import column_lengths
from vanilla_transformer.training.train import make_model
from vanilla_transformer.training.trainer import TranslationTrainer


OURS, THEIRS = "vanilla_transformer, training/train.py", "MarianMT, Seq2SeqTrainer"
PAIRS, TOKENIZER = "pairs", "tokenizer"  # in the folder that both systems read


@dataclass
class EndToEndBenchmarkArguments(MeasurementArguments):
    """Size of the models, the pairs, and the batches."""

    preset: str = key("tiny", "Size of the models.")
    vocab_size: int = key(10000, "Tokens in the joint BPE vocabulary learned from the corpus.")
    max_tokens: int = key(4096, "Tokens on each side of a batch, padding included.")
    pairs: int = key(4000, "Random pairs of the corpus to train on once; 0 for all.")
    batch_size: int = key(0, "Pairs in a batch of the stock trainer; 0: max_tokens / longest pair.")
    logging_steps: int = key(10, "Updates between two log entries.")
    compile: bool = key(False, "Compile the models (torch.compile).")
    rounds: int = key(3, "Number of rounds.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pairs", "batch_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name} {getattr(self, name)} must not be negative.")
        number = (self.device or "").partition(":")[2]
        if number:
            raise ValueError(
                f"--device {self.device}: a trainer uses the first visible GPU. Give --device cuda, and "
                f"CUDA_VISIBLE_DEVICES={number} before the command."
            )


class Prepared(NamedTuple):
    """What both systems train on."""

    folder: str
    pairs: int
    tokens: int  # of both sides
    batch_size: int  # of the stock trainer
    longest: int


class Trained(NamedTuple):
    """Measurements of one run."""

    seconds: float
    peak: int
    updates: int


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        corpus, options = parse_arguments([BenchmarkCorpusArguments, EndToEndBenchmarkArguments], __doc__, argv)
        report(options, measure(corpus, options))


def measure(corpus: CorpusArguments, options: EndToEndBenchmarkArguments) -> Iterator[Table]:
    """The table of both systems."""
    # For the processes of the runs: a trainer would divide its batches among all visible GPUs.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    device = set_up(options)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        prepared = prepare(corpus, options, folder)
        preparation = time.perf_counter() - start
        turns = {name: partial(in_fresh_process, train_once, name, prepared, options) for name in TRAINERS}
        runs = take_turns(turns, options.rounds)
    yield Table(
        f"training end to end, {options.preset}, {prepared.pairs:,} pairs once; {conditions(options, device)}",
        {"tokens/s": "{:,.0f}", **RATIO, "updates": "{:,}", "peak memory": "{:,.0f} MiB"},
        compare(runs, prepared),
        drawn=["to MarianMT"],
        reference=THEIRS,
        notes=[
            f"Ours: batches of at most {options.max_tokens:,} tokens on each side. MarianMT: {prepared.batch_size} "
            f"pairs. {options.max_tokens // prepared.longest} pairs of the longest length, {prepared.longest} tokens, "
            "reach that limit.",
            f"{prepared.tokens:,} tokens of both sides, without padding. The time is from making the trainer to its "
            "last update: batches, logging, optimizer and clipping included.",
            f"Reading, learning the vocabulary and tokenising took {preparation:.1f} s before, once for both.",
            "The memory is the peak of the run beyond the peak of its process before the model was made.",
            *gpu_notes(device),
        ],
    )


def compare(runs: dict[str, list[Trained]], prepared: Prepared) -> dict[str, dict[str, Any]]:
    """The rows of the table."""
    rows = speed_ratios({name: [run.seconds for run in trained] for name, trained in runs.items()}, THEIRS)
    for name, trained in runs.items():
        rows[name]["tokens/s"] = prepared.tokens / median(run.seconds for run in trained)
        rows[name]["updates"] = trained[0].updates
        rows[name]["peak memory"] = median(run.peak for run in trained) / 2**20
    return rows


def prepare(corpus: CorpusArguments, options: EndToEndBenchmarkArguments, folder: str) -> Prepared:
    """Writes the tokenizer and the tokenised pairs into a folder, which both systems read."""
    tokenizer, tokens = learn_and_tokenise(corpus, options.vocab_size)
    if 0 < options.pairs < len(tokens):
        tokens = tokens.shuffle(seed=0).select(range(options.pairs)).flatten_indices()
    source, target = column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels")
    longest = longest_fitting(options.max_tokens, source, target)
    tokenizer.save_pretrained(Path(folder) / TOKENIZER)
    tokens.save_to_disk(Path(folder) / PAIRS)
    # This many pairs, padded to the longest of all, have at most max_tokens on each side.
    batch_size = options.batch_size or options.max_tokens // longest
    return Prepared(folder, len(tokens), int(source.sum() + target.sum()), batch_size, longest)


# --- in the process of one run ---


def train_once(name: str, prepared: Prepared, options: EndToEndBenchmarkArguments) -> Trained:
    """One pass over the pairs."""
    device = set_up(options)
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
        make_trainer = TRAINERS[name](dataset, tokenizer, prepared, options, common)
        updates: list[int] = []
        with (Path(folder) / "log").open("w") as log, redirect_stdout(log):
            seconds = seconds_of(lambda: updates.append(make_trainer().train().global_step), device)
    return Trained(seconds, peak_memory(device) - before, updates[0])


def our_trainer(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    prepared: Prepared,
    options: EndToEndBenchmarkArguments,
    common: dict[str, Any],
) -> Callable[[], Seq2SeqTrainer]:
    """The trainer that `vanilla train` makes from a recipe."""
    args = TranslationTrainingArguments(max_steps=-1, max_tokens=options.max_tokens, **common)
    model = make_model(ModelArguments(preset=options.preset), tokenizer, None)
    return lambda: TranslationTrainer(model, args, processing_class=tokenizer, train_dataset=dataset)


def stock_trainer(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    prepared: Prepared,
    options: EndToEndBenchmarkArguments,
    common: dict[str, Any],
) -> Callable[[], Seq2SeqTrainer]:
    """The trainer of the library's documentation."""
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
