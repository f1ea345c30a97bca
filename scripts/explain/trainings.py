"""Short trainings on the demo corpus, by the recipe `explain`. Finished ones are used again, also by other topics."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.utils import logging

from vanilla_transformer.scripts.compare_variants import figures, train_variant
from vanilla_transformer.scripts.explain.explanation import ExplainArguments
from vanilla_transformer.scripts.explain.panels import Curves
from vanilla_transformer.training.evaluation.results import RESULTS
from vanilla_transformer.training.reports.plots import read_metrics


PAPER: dict[str, Any] = {}  # the recipe as it is: what most topics compare with
# What --quick changes: a model that is trained in two seconds and has learned nothing.
QUICK = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
QUICK_WORDS = [
    *("--train_split", "train[:200]", "--validation_split", "validation[:4]", "--test_split", "test[:20]"),
    *("--vocab_size", "300", "--logging_steps", "1"),
]


def train_all(
    variants: Mapping[str, dict[str, Any]],
    options: ExplainArguments,
    words: Sequence[str] = (),
    prefix: str = "",
) -> dict[str, Path]:
    """Trains a model for each variant, unless that is done, and returns the folders of the runs.

    Args:
        variants: A name and config fields for each model.
        options: Number of updates, and where the runs are.
        words: Further options of vanilla train for all of them.
        prefix: Start of the folders' names, for trainings that differ from the recipe in `words` too.
    """
    return {
        name: train_one(f"{prefix}{name}".replace(" ", "_"), fields, options, words)
        for name, fields in variants.items()
    }


def train_one(name: str, fields: dict[str, Any], options: ExplainArguments, words: Sequence[str] = ()) -> Path:
    """Trains one model and returns the folder of its run.

    Args:
        name: Name of the folder.
        fields: Config fields, on top of the recipe's.
        options: Number of updates, and where the runs are.
        words: Further options of vanilla train.
    """
    folder = Path(options.runs_dir) / f"{options.updates}_updates" / name
    if not (folder / RESULTS).is_file():
        print(f"training {folder.name}: {options.updates} updates", flush=True)
    if options.quick:
        words, fields = [*words, *QUICK_WORDS], {**QUICK, **fields}
    variant = ["--variants", json.dumps({name: fields}), "--model_config", json.dumps(fields)]
    argv = ["explain", *variant, "--max_steps", str(options.updates), "--report_to", "none", *words]
    previous = logging.get_verbosity()
    logging.set_verbosity_error()  # the loss every ten updates is in metrics.jsonl
    try:
        if not train_variant(argv, folder):
            raise KeyboardInterrupt
    finally:
        logging.set_verbosity(previous)
    return folder


def results(runs: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """Perplexity on the validation set, test BLEU and parameters of each run: rows of a table."""
    rows = {}
    for name, folder in runs.items():
        found = figures(folder, name)
        rows[name] = {
            "perplexity": found["perplexity"],
            "BLEU": found["bleu"],
            "parameters": found["parameters"],
        }
    return rows


FORMATS = {
    "perplexity": "{:.1f}",
    "BLEU": "{:.1f}",
    "parameters": "{:,}",
}


def loss_curves(runs: Mapping[str, Path]) -> Curves:
    """The training loss of each run, as a panel."""
    logs = {
        name: [entry for entry in read_metrics(folder / "metrics.jsonl") if "loss" in entry]
        for name, folder in runs.items()
    }
    return Curves(
        "training loss",
        "update",
        "loss per token, nats",
        {name: [entry["step"] for entry in entries] for name, entries in logs.items()},
        {name: [entry["loss"] for entry in entries] for name, entries in logs.items()},
        markers=False,
    )
