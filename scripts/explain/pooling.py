"""Attention as pooling: Nadaraya-Watson regression with the Gaussian score."""

import torch
from torch.nn.functional import mse_loss, softmax

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.attention_scores import AttentionScore, GaussianScore
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, HeatMap, Picture


RIGHT = 6.0  # keys lie between 0 and this
NOISE = 0.2


def explain(options: ExplainArguments) -> Explanation:
    """Attention as regression: a Gaussian score of fixed and of learned width."""
    number = options.choose(60, quick=40)
    keys = torch.linspace(0, RIGHT, number)
    values = curve(keys) + NOISE * torch.randn(number)
    queries = torch.linspace(0, RIGHT, 101)
    score = GaussianScore(VanillaTransformerConfig(), num_heads=1, d_k=1)  # its width starts at 1
    widths = {"mean of all": 0.0, "fixed width": 1.0, "learned width": learn_width(score, keys, values, steps=150)}
    maps: dict[str, torch.Tensor] = {}
    outputs: dict[str, torch.Tensor] = {}
    rows: dict[str, dict[str, float]] = {}
    for name, width in widths.items():
        with torch.no_grad():
            score.width.fill_(width)
            maps[name] = weights(score, queries, keys)
            outputs[name] = maps[name] @ values
            unseen = mse_loss(weights(score, keys, keys, leave_out=True) @ values, values)
        rows[name] = {
            "width w": width,
            "error, unseen point": unseen.item(),
            "error, true curve": mse_loss(outputs[name], curve(queries)).item(),
        }
    table = Table(
        f"Nadaraya-Watson regression: {number} noisy points, weights softmax(-((x - x_i) w)^2 / 2)",
        {"width w": "{:.2f}", "error, unseen point": "{:.3f}", "error, true curve": "{:.3f}"},
        rows,
        notes=["Errors are mean squares. A point is unseen if it has no weight in its own prediction."],
    )
    return Explanation([table], [draw(keys, values, queries, outputs, maps, rows)])


def curve(x: torch.Tensor) -> torch.Tensor:
    """The function to be found."""
    return torch.sin(3 * x) * torch.exp(-x / 3) + x / 4


def weights(
    score: AttentionScore, queries: torch.Tensor, keys: torch.Tensor, *, leave_out: bool = False
) -> torch.Tensor:
    """Attention weights [T, S] of numbers as queries [T] and keys [S].

    Args:
        score: The Gaussian score.
        queries: Where the function is asked for.
        keys: Where it is known.
        leave_out: Whether a query has no weight on the key of the same index.
    """
    scores = score(queries[None, :, None], keys[None, :, None])[0]
    if leave_out:
        scores = scores.masked_fill(torch.eye(len(keys), dtype=torch.bool), -torch.inf)
    return softmax(scores, dim=-1)


def learn_width(score: AttentionScore, keys: torch.Tensor, values: torch.Tensor, steps: int) -> float:
    """Learns the width of the score: each value is predicted from all others, else every point would choose itself."""
    optimizer = torch.optim.Adam(score.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        mse_loss(weights(score, keys, keys, leave_out=True) @ values, values).backward()
        optimizer.step()
    return score.width.abs().item()


def draw(
    keys: torch.Tensor,
    values: torch.Tensor,
    queries: torch.Tensor,
    outputs: dict[str, torch.Tensor],
    maps: dict[str, torch.Tensor],
    rows: dict[str, dict[str, float]],
) -> Picture:
    """The curves, and the weights of the two widths."""
    curves = {"true curve": curve(queries), **outputs, "data": values}
    points = {name: (keys if name == "data" else queries).tolist() for name in curves}
    lines = Curves(
        "predictions",
        "query x",
        "value",
        points,
        {name: line.tolist() for name, line in curves.items()},
        dots=["data"],
        markers=False,
    )
    heat = [
        HeatMap(
            f"{name}, w = {rows[name]['width w']:.2f}",
            "key $x_i$",
            "query x",
            maps[name].numpy(),
            "attention weight",
            extent=(0, RIGHT, RIGHT, 0),
        )
        for name in ("fixed width", "learned width")
    ]
    return Picture("Attention is a weighted mean of values: nearby keys count more", [[lines, *heat]])
