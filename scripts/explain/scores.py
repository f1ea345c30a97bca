"""Additive against dot-product scores, and one projection for queries and keys."""

from typing import Any

import torch

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.layer_costs import D_MODEL, KEPT, SelfAttention, cost, cost_formats
from vanilla_transformer.scripts.explain.panels import Curves, Picture
from vanilla_transformer.scripts.explain.trainings import FORMATS, PAPER, loss_curves, results, train_all


SCORES = {"dot product": "scaled_dot", "additive": "additive"}
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": PAPER,
    "no scale": {"score_function": "dot"},
    "additive": {"score_function": "additive"},
    "one matrix": {"key_projection": "shared"},
}


def explain(options: ExplainArguments) -> Explanation:
    """Additive against dot-product scores: time, memory and perplexity; queries and keys that share one matrix. *"""
    lengths = options.choose([32, 64, 128, 256], quick=[16, 32])
    # Eager attention for both, so that only the score differs.
    layers = {name: SelfAttention("eager", score_function=score) for name, score in SCORES.items()}
    rows = {f"{n}": cost(layers, torch.randn(1, n, D_MODEL), options.rounds) for n in lengths}
    costs = Table(
        "one self-attention over n tokens, tiny model, eager attention: forward and backward pass",
        cost_formats(layers),
        rows,
        notes=[KEPT],
    )
    runs = {name.replace("paper", "dot product"): folder for name, folder in train_all(VARIANTS, options).items()}
    quality = Table(
        f"{options.updates} updates on the demo corpus, one seed",
        FORMATS,
        results(runs),
        notes=["One matrix: queries and keys share their projection (key_projection)."],
    )
    panels = [
        Curves(
            title,
            "tokens, n",
            unit,
            lengths,
            {name: [row[f"{name}, {unit}"] for row in rows.values()] for name in layers},
            log="xy",
        )
        for title, unit in (("time of a layer", "ms"), ("memory of a layer", "MiB"))
    ]
    picture = Picture("The additive score costs more time and memory", [[*panels, loss_curves(runs)]])
    return Explanation([costs, quality], [picture])
