"""Why scores are divided by the square root of d_k."""

import math

import torch
from torch.nn.functional import softmax

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.attention_scores import DotProduct
from vanilla_transformer.models.modeling_vanilla_transformer import ScaledDotProduct
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture


QUERIES, KEYS = 64, 32
NO_SCALE, ROOT, WHOLE = "no scale", "1 / sqrt(d_k)", "1 / d_k"
COLUMNS = {
    "variance of scores": "{:.3g}",
    "entropy of weights": "{:.2f}",
    "gradient at scores": "{:.4f}",
    "gradient at query": "{:.4f}",
}


def explain(options: ExplainArguments) -> Explanation:
    """Why scores are divided by sqrt(d_k): variance, entropy and gradient as heads get wider."""
    widths = options.choose([4, 16, 64, 256, 1024], quick=[4, 64, 1024])
    rows = {f"{scale}, d_k = {d_k}": figures(scale, d_k) for scale in (NO_SCALE, ROOT, WHOLE) for d_k in widths}
    table = Table(
        f"softmax over {KEYS} random keys, queries and keys with unit variance",
        COLUMNS,
        rows,
        notes=[
            f"Entropy in nats; equal weights have {math.log(KEYS):.2f}.",
            "Gradients are Frobenius norms of the derivative of the weights.",
        ],
    )
    labels = ["variance", "entropy, nats", "norm of the derivative", "norm of the derivative"]
    panels = [
        Curves(
            column,
            "width of a head, $d_k$",
            label,
            widths,
            {scale: [rows[f"{scale}, d_k = {d_k}"][column] for d_k in widths] for scale in (NO_SCALE, ROOT, WHOLE)},
            log="x" if column.startswith("entropy") else "xy",
        )
        for column, label in zip(COLUMNS, labels, strict=True)
    ]
    title = r"Only $1/\sqrt{d_k}$ keeps variance, entropy and gradient the same for every width"
    return Explanation([table], [Picture(title, [panels[:2], panels[2:]])])


def figures(scale: str, d_k: int) -> dict[str, float]:
    """Mean figures of random queries and keys under one scale."""
    query, key = torch.randn(QUERIES, d_k), torch.randn(KEYS, d_k)
    score = (ScaledDotProduct if scale == ROOT else DotProduct)(VanillaTransformerConfig(), num_heads=1, d_k=d_k)
    factor = 1 / d_k if scale == WHOLE else 1.0
    scores = score(query, key) * factor  # [Q, K]
    derivative = softmax_derivative(softmax(scores, dim=-1))
    at_query = derivative @ key * factor * score.scaling  # [Q, K, d_k]
    return {
        "variance of scores": scores.var().item(),
        "entropy of weights": torch.special.entr(softmax(scores, dim=-1)).sum(-1).mean().item(),
        "gradient at scores": derivative.norm(dim=(1, 2)).mean().item(),
        "gradient at query": at_query.norm(dim=(1, 2)).mean().item(),
    }


def softmax_derivative(weights: torch.Tensor) -> torch.Tensor:
    """diag(p) - p p^T for each row p of the weights [Q, K]: the derivative of the softmax by its scores [Q, K, K]."""
    return torch.diag_embed(weights) - weights[:, :, None] * weights[:, None, :]
