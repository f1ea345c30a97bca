"""Pictures of results, drawn with matplotlib (`pip install matplotlib`) if it is installed."""

import importlib.util
import json
import math
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.utils import logging

from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.training.evaluation.metrics import Bucket
from vanilla_transformer.training.learning_rate import peak_rate, share_of_peak
from vanilla_transformer.translation.attention_maps import AttentionMaps


if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes


logger = logging.get_logger(__name__)

# Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow: that is too light for lines.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The entries of a metrics.jsonl. Broken lines, such as a last one cut by a crash, are skipped with a warning."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            logger.warning(f"{path}: skipped the broken line {line!r:.60}")
    return entries


def _pyplot() -> Any:
    """matplotlib's pyplot, drawing to files only, or None if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        logger.warning_once("No pictures: matplotlib is not installed (pip install matplotlib).")
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_learning_curve(metrics: Path, picture: Path) -> None:
    """Loss, BLEU and learning rate over steps, from a run's metrics.jsonl: those of them that it has."""
    pyplot = _pyplot()
    if pyplot is None or not metrics.is_file():
        return
    lines = read_metrics(metrics)
    measured = {name for line in lines for name in line}
    panels = [
        ("loss per token", {"loss": "training (smoothed labels)", "eval_loss": "validation"}),
        ("BLEU", {"eval_bleu": "validation"}),
        ("learning rate", {"learning_rate": "rate"}),
    ]
    panels = [(title, curves) for title, curves in panels if measured & curves.keys()]
    if not panels:
        return
    figure, grid = pyplot.subplots(
        len(panels), 1, sharex=True, squeeze=False, figsize=(8, 8 / 3 * len(panels)), layout="constrained"
    )
    axes = grid[:, 0]
    for axis, (title, curves) in zip(axes, panels, strict=True):
        for name, label in curves.items():
            points = [(line["step"], line[name]) for line in lines if name in line]
            if points:
                axis.plot(
                    *zip(*points, strict=True), label=label, marker="o" if len(points) < 30 else None, markersize=3
                )
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
        if len(axis.lines) > 1:
            axis.legend()
    axes[-1].set_xlabel("step")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def plot_losses(runs: Mapping[str, Path], picture: Path) -> None:
    """The validation loss of several runs over steps, from their metrics.jsonl: of those that have it."""
    pyplot = _pyplot()
    points = {
        name: [(line["step"], line["eval_loss"]) for line in read_metrics(path) if "eval_loss" in line]
        for name, path in runs.items()
    }
    if pyplot is None or not any(points.values()):
        return
    figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, of_run in points.items():
        if of_run:
            axis.plot(*zip(*of_run, strict=True), label=name, marker="o", markersize=3)
    axis.set_xlabel("update")
    axis.set_ylabel("validation loss per token")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def require_matplotlib() -> None:
    """Raises an error if matplotlib is missing, for commands that only draw."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("matplotlib is missing, which draws the pictures: pip install matplotlib.")


def plot_learning_rates(curves: Sequence[tuple[int, int]], steps: int, picture: Path) -> None:
    """The paper's learning rate (section 5.3) over the steps, one curve for each pair (d_model, warm-up steps)."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    figure, axis = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for d_model, warmup in curves:
        peak = peak_rate(d_model, warmup)
        points = sorted({*range(1, steps + 1, math.ceil(steps / 2000)), min(warmup, steps)})  # the peak included
        rates = [peak * share_of_peak(step, warmup) for step in points]
        axis.plot(points, rates, label=f"d_model {d_model}, {warmup:,} steps of warm-up: peak {peak:.2g}")
    axis.set_xlabel("step")
    axis.set_ylabel("learning rate")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def plot_positions(vectors: torch.Tensor, picture: Path, title: str = "") -> None:
    """A heat map of positional encodings [positions, dimensions]."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    figure, axis = pyplot.subplots(figsize=(9, 5), layout="constrained")
    largest = float(vectors.abs().max()) or 1.0  # a symmetric scale, so that zero is white
    scale: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
    image = axis.imshow(vectors.numpy(), aspect="auto", interpolation="nearest", origin="lower", **scale)
    axis.set_xlabel("dimension")
    axis.set_ylabel("position")
    axis.set_title(title, parse_math=False)
    figure.colorbar(image, ax=axis)
    figure.savefig(picture, dpi=200)  # at least two pixels for each of 512 dimensions
    pyplot.close(figure)


def plot_bleu_by_length(systems: Mapping[str, Sequence[Bucket]], picture: Path) -> None:
    """Bars of BLEU for each bucket of source lengths, one for each system. All systems have the same buckets."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    figure, axis = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    buckets = next(iter(systems.values()))
    width = 0.8 / len(systems)
    for number, (name, scores) in enumerate(systems.items()):
        shift = (number - (len(systems) - 1) / 2) * width
        places = [place + shift for place in range(len(scores))]
        color = COLORS[number % len(COLORS)]
        bars = axis.bar(places, [bucket.sacrebleu for bucket in scores], width, label=name, color=color)
        axis.bar_label(bars, [f"{bucket.sacrebleu:.1f}" for bucket in scores], padding=2, fontsize=8)
    axis.set_xticks(range(len(buckets)), [f"{bucket.label}\n{bucket.sentences:,} sent." for bucket in buckets])
    if len(systems) > 1:
        figure.legend(loc="outside upper right", ncols=len(systems))  # outside, where it covers no number
    axis.margins(y=0.1)
    axis.set_title("BLEU by sentence length")
    axis.set_xlabel("words of the source")
    axis.set_ylabel("sacreBLEU")
    axis.grid(alpha=0.3, axis="y")
    axis.set_axisbelow(True)
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def plot_directions(scores: Mapping[Languages, float], picture: Path) -> None:
    """A heat map of BLEU: a row for each source language, a column for each target language."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    sources, targets = (list(dict.fromkeys(direction[side] for direction in scores)) for side in (0, 1))
    table = np.array([[scores.get(Languages(source, target), np.nan) for target in targets] for source in sources])
    figure, axis = pyplot.subplots(figsize=(2.5 + 0.9 * len(targets), 1.8 + 0.7 * len(sources)), layout="constrained")
    image = axis.imshow(table, cmap="viridis", aspect="auto")
    middle = (np.nanmin(table) + np.nanmax(table)) / 2
    for (row, column), score in np.ndenumerate(table):
        if not np.isnan(score):
            color = "white" if score <= middle else "black"
            axis.text(column, row, f"{score:.1f}", ha="center", va="center", color=color)
    axis.set_xticks(range(len(targets)), targets)
    axis.set_yticks(range(len(sources)), sources)
    axis.set_xlabel("target")
    axis.set_ylabel("source")
    axis.set_title("BLEU by direction")
    figure.colorbar(image, ax=axis, label="sacreBLEU")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


# --- benchmarks ---


@dataclass(frozen=True)
class Bars:
    """One panel of horizontal bars.

    Args:
        title: Title of the panel.
        label: Label of the axis of values.
        values: The value of each bar, from top to bottom.
        spreads: Smallest and largest value, for bars that have whiskers.
        form: Format string of the number beside a bar.
        reference: The bar that the others are compared with, drawn in grey.
    """

    title: str
    label: str
    values: dict[str, float]
    spreads: dict[str, tuple[float, float]]
    form: str = "{:.2f}"
    reference: str | None = None


def plot_bars(panels: Sequence[Bars], picture: Path) -> None:
    """Panels one below the other, with whiskers for the spreads."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    heights = [1.3 + 0.32 * len(panel.values) for panel in panels]
    options: dict[str, Any] = {"figsize": (9, sum(heights)), "height_ratios": heights}
    figure, axes = pyplot.subplots(len(panels), 1, **options, squeeze=False, layout="constrained")
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        for row, (name, value) in enumerate(panel.values.items()):
            least, greatest = panel.spreads.get(name, (value, value))
            whisker = [[value - least], [greatest - value]] if least < greatest else None
            color = "0.7" if name == panel.reference else COLORS[0]
            axis.barh(row, value, xerr=whisker, capsize=3, color=color, ecolor="0.2")
            axis.annotate(panel.form.format(value), (greatest, row), (6, 0), textcoords="offset points", va="center")
        axis.set_yticks(range(len(panel.values)), list(panel.values))
        axis.invert_yaxis()
        axis.margins(x=0.15)  # room for the numbers
        axis.set_title(textwrap.fill(panel.title, 100), fontsize=9, loc="left", parse_math=False)
        axis.set_xlabel(panel.label, fontsize=9)
        axis.grid(alpha=0.3, axis="x")
        axis.set_axisbelow(True)
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


@dataclass(frozen=True)
class Sides:
    """One of several panels whose bars have the same rows: for each row one value, or one for each seed."""

    label: str
    values: dict[str, list[float]]


def plot_sides(panels: Sequence[Sides], picture: Path, *, marked: Collection[str], title: str) -> None:
    """Panels beside each other with the means of values; dots show single ones. Marked rows have another colour."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    names = list(panels[0].values)
    size = (4.6 * len(panels), 1.4 + 0.28 * len(names))
    figure, axes = pyplot.subplots(1, len(panels), figsize=size, sharey=True, squeeze=False, layout="constrained")
    for axis, panel in zip(axes[0], panels, strict=True):
        for row, (name, values) in enumerate(panel.values.items()):
            axis.barh(row, sum(values) / len(values), color=COLORS[1] if name in marked else COLORS[0])
            if len(values) > 1:
                axis.plot(values, [row] * len(values), "|-", color="0.2", markersize=7)
        axis.set_yticks(range(len(names)), names, fontsize=8)
        axis.set_xlabel(panel.label, fontsize=9)
        axis.axvline(0, color="0.4", linewidth=0.8)
        axis.grid(alpha=0.3, axis="x")
        axis.set_axisbelow(True)
    axes[0, 0].invert_yaxis()
    figure.suptitle(textwrap.fill(title, 110), fontsize=9, parse_math=False)
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


# --- attention ---


def plot_attention(
    weights: torch.Tensor, source: Sequence[str], target: Sequence[str], picture: Path, title: str = ""
) -> None:
    """A heat map of one attention matrix [T, S], with the tokens on its axes."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    size = (2 + 0.4 * len(source), 1.5 + 0.4 * len(target))
    figure, axis = pyplot.subplots(figsize=size, layout="constrained")
    scale = pyplot.matplotlib.colors.PowerNorm(0.5, vmin=0, vmax=1)  # as in the pictures of all heads
    image = axis.imshow(weights.float().numpy(), cmap="viridis", norm=scale, aspect="auto")
    figure.colorbar(image, ax=axis, label="weight (colour: its root)")
    _name_columns(axis, source, rotation=60, ha="right")
    _name_rows(axis, target)
    axis.set_title(textwrap.fill(title, max(int(size[0] * 10), 40)), fontsize=10, parse_math=False)
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def plot_attention_heads(maps: AttentionMaps, picture: Path, sentence: str = "") -> None:
    """Heat maps of all heads, one row for each layer, on one scale, under the sentence they belong to."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    weights = maps.weights.float().numpy()
    layers, heads, rows, columns = weights.shape
    height, width = (min(max(0.15 * tokens, 1.2), 4.8) for tokens in (rows, columns))  # inches per head
    every_row, every_column = (math.ceil(tokens / 32) for tokens in (rows, columns))  # at most 32 labels
    size = (1.5 + width * heads, 1.5 + height * layers)
    figure, axes = pyplot.subplots(layers, heads, figsize=size, squeeze=False, layout="constrained")
    # The colour shows the square root of the weight: on a linear scale most weights would look equally dark.
    scale = pyplot.matplotlib.colors.PowerNorm(0.5, vmin=0, vmax=1)
    for (layer, head), axis in np.ndenumerate(axes):
        image = axis.imshow(weights[layer, head], cmap="viridis", norm=scale, aspect="auto")
        axis.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=8)
        _name_columns(axis, maps.columns if layer == layers - 1 else (), every_column, rotation=90, fontsize=7)
        _name_rows(axis, maps.rows if head == 0 else (), every_row, fontsize=7)
    figure.suptitle("\n".join([maps.kind, *textwrap.wrap(sentence, max(int(size[0] * 12), 40))]), parse_math=False)
    figure.supxlabel(maps.columns_are, fontsize=9)
    figure.supylabel(maps.rows_are, fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, fraction=0.05, pad=0.02, label="weight (colour: its root)")
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def _name_columns(axis: "Axes", tokens: Sequence[str], every: int = 1, **style: Any) -> None:
    # parse_math=False: a token such as $x$ is text, not a formula.
    axis.set_xticks(range(0, len(tokens), every), tokens[::every], parse_math=False, **style)


def _name_rows(axis: "Axes", tokens: Sequence[str], every: int = 1, **style: Any) -> None:
    axis.set_yticks(range(0, len(tokens), every), tokens[::every], parse_math=False, **style)
