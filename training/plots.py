"""Pictures of results. They need matplotlib (`pip install vanilla-transformer[plots]`); without it none are drawn."""

import json
from pathlib import Path

from transformers.utils import logging


logger = logging.get_logger(__name__)


def read_metrics(path: Path) -> list[dict]:
    """The entries of a metrics.jsonl; a last line that a power cut left half written is passed over."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            logger.warning(f"{path}: passed over the broken line {line!r:.60}")
    return entries


def _pyplot():
    """matplotlib without a screen, or None if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        logger.warning_once("No pictures: matplotlib is not installed (pip install vanilla-transformer[plots]).")
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def plot_learning_curve(metrics: Path, picture: Path) -> None:
    """Loss, BLEU and learning rate over steps, from a run's metrics.jsonl."""
    pyplot = _pyplot()
    if pyplot is None or not metrics.is_file():
        return
    lines = read_metrics(metrics)
    panels = [
        ("loss per token", {"loss": "training (smoothed labels)", "eval_loss": "validation"}),
        ("BLEU", {"eval_bleu": "validation"}),
        ("learning rate", {"learning_rate": "rate"}),
    ]
    figure, axes = pyplot.subplots(len(panels), 1, sharex=True, figsize=(8, 8), layout="constrained")
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


def plot_attention(weights, source: list[str], target: list[str], picture: Path, title: str = "") -> None:
    """A heat map of one attention matrix [T, S], the tokens on its axes."""
    pyplot = _pyplot()
    if pyplot is None:
        return
    size = (2 + 0.4 * len(source), 1.5 + 0.4 * len(target))
    figure, axis = pyplot.subplots(figsize=size, layout="constrained")
    axis.imshow(weights, cmap="viridis", vmin=0, aspect="auto")
    axis.set_xticks(range(len(source)), source, rotation=60, ha="right")
    axis.set_yticks(range(len(target)), target)
    axis.set_title(title)
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)
