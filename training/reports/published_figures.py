"""The losses of variants beside perplexities that were published for them: ranks, and where the two disagree."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import correlation, mean
from typing import Any

from vanilla_transformer.training.reports.plots import Sides, plot_sides


SAME = 0.01  # nats per token: smaller differences from the first variant have no direction


def compare_with_published(
    published: Mapping[str, float], losses: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, Any]]:
    """Returns a row for each variant: its differences from the first one in nats per token, published and ours.

    Args:
        published: A perplexity for each variant.
        losses: Validation losses of each variant, one for each seed.
    """
    first = next(iter(losses))
    rows = {}
    for name, seeds in losses.items():
        theirs = math.log(published[name] / published[first])
        ours = [loss - mean(losses[first]) for loss in seeds]
        rows[name] = {
            "published": theirs,
            "ours": mean(ours),
            "seeds": ours,
            "disagrees": _direction(theirs) * _direction(mean(ours)) < 0,
        }
    return rows


def _direction(difference: float) -> int:
    return 0 if abs(difference) < SAME else 1 if difference > 0 else -1


def rank_correlation(rows: Mapping[str, Mapping[str, Any]]) -> float | None:
    """Spearman's correlation of published and our figures; equal figures share the mean of their ranks. `None` if
    there is one variant, or if all figures of one side are equal."""
    published, ours = (_ranks([row[side] for row in rows.values()]) for side in ("published", "ours"))
    return None if 1 in (len(set(published)), len(set(ours))) else correlation(published, ours)


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < value for other in values) + values.count(value) / 2 for value in values]


def describe(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Says how alike the ranks are, how far seeds differ, and which variants disagree."""
    disagreeing = [name for name, row in rows.items() if row["disagrees"]]
    spreads = [max(row["seeds"]) - min(row["seeds"]) for row in rows.values() if len(row["seeds"]) > 1]
    seeds = f"seeds differ by up to {max(spreads):.3f} nats" if spreads else "one seed"
    where = f"disagreement at {', '.join(disagreeing)}" if disagreeing else "no disagreement"
    ranks = rank_correlation(rows)
    correlated = "No rank correlation" if ranks is None else f"Rank correlation {ranks:.2f}"
    return f"{correlated} over {len(rows)} variants, {seeds}; {where}."


def plot_published(rows: Mapping[str, Mapping[str, Any]], picture: Path) -> None:
    """Draws both differences of each variant beside each other, ours with the range of its seeds."""
    first = next(iter(rows))
    marked = [name for name, row in rows.items() if row["disagrees"]]
    sides = [
        Sides(
            f"published: log-perplexity minus that of {first}",
            {name: [row["published"]] for name, row in rows.items()},
        ),
        Sides(f"ours: validation loss minus that of {first}", {name: row["seeds"] for name, row in rows.items()}),
    ]
    plot_sides(sides, picture, marked=marked, title=describe(rows))
