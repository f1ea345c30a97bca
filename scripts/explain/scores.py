"""Additive against dot-product scores, and one projection for queries and keys."""

from typing import Any

import torch

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.copying import batches, learn, make_model, right_tokens, smooth
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.layer_costs import D_MODEL, KEPT, SelfAttention, cost, cost_formats
from vanilla_transformer.scripts.explain.panels import Curves, Picture


SCORES = {"dot product": "scaled_dot", "additive": "additive"}
VARIANTS: dict[str, dict[str, Any]] = {
    "dot product": {},
    "no scale": {"score_function": "dot"},
    "additive": {"score_function": "additive"},
    "one matrix": {"share_qk": True},
}


def explain(options: ExplainArguments) -> Explanation:
    """Additive against dot-product scores: time, memory and learning; queries and keys that share one matrix."""
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
    updates = options.choose(200, quick=10)
    losses: dict[str, list[float]] = {}
    trained: dict[str, dict[str, Any]] = {}
    for name, fields in VARIANTS.items():
        model = make_model(**fields)
        losses[name] = smooth(learn(model, batches(), updates))
        trained[name] = {
            "last loss": losses[name][-1],
            "right tokens": right_tokens(model),
            "parameters": model.num_parameters(),
        }
    quality = Table(
        f"learning to copy, {updates} updates",
        {"last loss": "{:.3f}", "right tokens": "{:.0%}", "parameters": "{:,}"},
        trained,
        notes=["One matrix: queries and keys share their projection (share_qk). Loss: mean of ten updates."],
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
    points = [10 * number for number in range(1, 1 + len(losses["additive"]))]
    learned = Curves("learning to copy", "update", "loss per token, nats", points, losses, markers=False)
    picture = Picture("The additive score costs more time and memory", [[*panels, learned]])
    return Explanation([costs, quality], [picture])
