"""What dropout does in training, and that it is off in testing."""

from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Columns, Curves, Picture
from vanilla_transformer.scripts.explain.trainings import loss_curve, train_all
from vanilla_transformer.training.plots import read_metrics


# Few sentences, so that the model can learn them by heart. Without smoothing, both losses are cross-entropy.
RATES = {f"dropout {rate}": {"dropout": rate, "label_smoothing": 0.0} for rate in (0.0, 0.3)}
FEW_PAIRS = ["--train_split", "train[:500]", "--max_tokens", "512"]
EVALUATE = ["--eval_strategy", "steps", "--eval_steps", "0.1", "--eval_bleu", "false"]


def explain(options: ExplainArguments) -> Explanation:
    """Dropout on a small corpus: training against validation loss, and passes in training and in test mode. *"""
    options = replace(options, updates=max(options.updates // 2, 1))  # enough to learn few pairs by heart
    runs = train_all(RATES, options, [*FEW_PAIRS, *EVALUATE], "few_pairs_")
    training = {name: loss_curve(folder) for name, folder in runs.items()}
    validation = {name: validation_curve(folder) for name, folder in runs.items()}
    passes = {name: spread_of_passes(folder / "model") for name, folder in runs.items()}
    table = Table(
        f"500 training pairs, {options.updates} updates, one seed",
        {
            "last training loss": "{:.2f}",
            "best validation loss": "{:.2f}",
            "last validation loss": "{:.2f}",
            "passes in training mode": "{:.3f}",
            "passes in test mode": "{:.3f}",
        },
        {
            name: {
                "last training loss": training[name][1][-1],
                "best validation loss": min(validation[name][1]),
                "last validation loss": validation[name][1][-1],
                **passes[name],
            }
            for name in runs
        },
        notes=["Passes: standard deviation of the logits over ten passes on the same sentence."],
    )
    panels = [
        *(
            Curves(
                title,
                "update",
                "loss per token, nats",
                {name: steps for name, (steps, _) in curves.items()},
                {name: losses for name, (_, losses) in curves.items()},
                markers=markers,
            )
            for title, curves, markers in (
                ("training loss", training, False),
                ("validation loss", validation, True),
            )
        ),
        Columns(
            "ten passes on one sentence",
            "",
            "standard deviation of logits",
            {
                name.removeprefix("passes in "): {rate: row[name] for rate, row in passes.items()}
                for name in ("passes in training mode", "passes in test mode")
            },
            "{:.2f}",
        ),
    ]
    title = "Dropout makes learning by heart harder; it is off in testing"
    return Explanation([table], [Picture(title, [panels])])


def validation_curve(folder: Path) -> tuple[list[int], list[float]]:
    """Updates and validation losses of a run."""
    entries = [entry for entry in read_metrics(folder / "metrics.jsonl") if "eval_loss" in entry]
    return [entry["step"] for entry in entries], [entry["eval_loss"] for entry in entries]


@torch.no_grad()
def spread_of_passes(folder: Path) -> dict[str, float]:
    """Standard deviation of the logits over ten passes, in training mode and in test mode."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    ids = torch.arange(4, 16)[None]
    spreads = {}
    for name, is_training in (("passes in training mode", True), ("passes in test mode", False)):
        model.train(is_training)
        logits = torch.stack([model(input_ids=ids, decoder_input_ids=ids).logits for _ in range(10)])
        spreads[name] = logits.std(dim=0).mean().item()
    return spreads
