"""The panels of pictures, in colours that colour-blind readers can tell apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from vanilla_transformer.training.reports.plots import COLORS


if TYPE_CHECKING:  # an optional dependency
    from matplotlib.axes import Axes


# Besides colours, markers and dashes tell curves apart.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", "-", "--", "-.")
WIDTH, HEIGHT = 3.6, 3.1  # inches of a panel
DOTS_PER_INCH, NUMBER_OF_COLORS = 130, 256


class Panel(Protocol):
    """One part of a picture, which draws itself."""

    def draw(self, axis: "Axes") -> None: ...


@dataclass(frozen=True)
class Curves:
    """Lines over numbers.

    Args:
        title: Title of the panel.
        label: What the horizontal axis shows, with its unit.
        value_label: The same for the vertical axis.
        points: Positions on the horizontal axis; for curves of different lengths, a dict with the name of each.
        curves: The values of each curve.
        log: Axes that are logarithmic: "", "x", "y" or "xy".
        dots: Curves drawn as points without a line.
        markers: Whether lines have markers.
    """

    title: str
    label: str
    value_label: str
    points: Sequence[float] | Mapping[str, Sequence[float]]
    curves: Mapping[str, Sequence[float]]
    log: Literal["", "x", "y", "xy"] = ""
    dots: Sequence[str] = ()
    markers: bool = True

    def draw(self, axis: "Axes") -> None:
        for number, (name, values) in enumerate(self.curves.items()):
            points = self.points[name] if isinstance(self.points, Mapping) else self.points
            style: dict[str, Any] = {"color": COLORS[number % len(COLORS)], "label": name}
            if name in self.dots:
                style |= {"linestyle": "", "marker": ".", "alpha": 0.6}
            else:
                marker = MARKERS[number % len(MARKERS)] if self.markers else None
                style |= {"linestyle": DASHES[number % len(DASHES)], "marker": marker, "markersize": 5}
            axis.plot(points, values, **style)
        if "x" in self.log:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:,.0f}")
        if "y" in self.log:
            axis.set_yscale("log")
        if len(self.curves) > 5:  # too many to leave room for a legend among them
            axis.legend(fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
        elif len(self.curves) > 1:
            axis.legend(fontsize=8.5, framealpha=0.8)
        _finish(axis, self)


@dataclass(frozen=True)
class Columns:
    """Groups of bars with their numbers above them.

    Args:
        title: Title of the panel.
        label: What the groups are.
        value_label: What the height shows, with its unit.
        groups: For each group the height of each bar.
        form: Format string of the numbers.
    """

    title: str
    label: str
    value_label: str
    groups: Mapping[str, Mapping[str, float]]
    form: str = "{:.1f}"

    def draw(self, axis: "Axes") -> None:
        names = list(next(iter(self.groups.values())))
        width = 0.8 / len(names)
        for number, name in enumerate(names):
            places = np.arange(len(self.groups)) + (number - (len(names) - 1) / 2) * width
            heights = [group[name] for group in self.groups.values()]
            bars = axis.bar(places, heights, width * 0.95, color=COLORS[number % len(COLORS)], label=name)
            axis.bar_label(bars, [self.form.format(height) for height in heights], padding=2, fontsize=8)
        axis.set_xticks(range(len(self.groups)), list(self.groups), fontsize=9)
        tallest = max(height for group in self.groups.values() for height in group.values())
        axis.set_ylim(0, tallest * (1.15 if len(names) == 1 else 1.4))  # room for the numbers and the legend
        if len(names) > 1:
            axis.legend(fontsize=8.5, framealpha=0.8, ncols=2, loc="upper right")
        _finish(axis, self)


@dataclass(frozen=True)
class HeatMap:
    """A matrix as colours: viridis from the smallest value to the largest, or red and blue around zero.

    Args:
        title: Title of the panel.
        label: What the columns are.
        value_label: What the rows are.
        values: The matrix, its first row at the top.
        colors: What the colour shows.
        signed: Whether zero is white.
        ticks: Names of columns and rows, in place of numbers.
        extent: Numbers of the left, right, bottom and top edges, in place of indices.
    """

    title: str
    label: str
    value_label: str
    values: np.ndarray
    colors: str
    signed: bool = False
    ticks: tuple[Sequence[str], Sequence[str]] | None = None
    extent: tuple[float, float, float, float] | None = None

    def draw(self, axis: "Axes") -> None:
        scale: dict[str, Any] = {"cmap": "viridis"}
        if self.signed:
            largest = float(np.abs(self.values).max()) or 1.0
            scale = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
        image = axis.imshow(self.values, aspect="auto", interpolation="nearest", extent=self.extent, **scale)
        axis.figure.colorbar(image, ax=axis, label=self.colors)
        if self.ticks is not None:
            columns, rows = self.ticks
            axis.set_xticks(range(len(columns)), columns, rotation=60, ha="right", fontsize=8)
            axis.set_yticks(range(len(rows)), rows, fontsize=8)
        _finish(axis, self, grid=False)


def _finish(axis: "Axes", panel: Curves | Columns | HeatMap, grid: bool = True) -> None:
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.label)
    axis.set_ylabel(panel.value_label)
    if grid:
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)


@dataclass(frozen=True)
class Picture:
    """Rows of panels in one file. Every row has the whole width.

    Args:
        title: Title of the picture.
        rows: The panels.
        suffix: End of the file's name, for the second picture of a topic.
    """

    title: str
    rows: Sequence[Sequence[Panel]]
    suffix: str = ""

    def save(self, path: Path) -> None:
        """Draws the panels into a PNG file, with as many colours as they need: a third of the size of true colour."""
        from matplotlib.figure import Figure
        from PIL import Image  # comes with matplotlib

        columns = max(1.6, *map(len, self.rows))  # a panel alone is wider, for its title
        figure = Figure(figsize=(WIDTH * columns, HEIGHT * len(self.rows) + 0.3), layout="constrained")
        parts = figure.subfigures(len(self.rows), 1, squeeze=False)[:, 0]
        for part, panels in zip(parts, self.rows, strict=True):
            for axis, panel in zip(part.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
                panel.draw(axis)
        figure.suptitle(self.title, fontsize=11.5)
        drawn = BytesIO()
        figure.savefig(drawn, dpi=DOTS_PER_INCH, format="png")
        Image.open(drawn).convert("RGB").quantize(NUMBER_OF_COLORS, dither=Image.Dither.NONE).save(
            path, "PNG", optimize=True
        )
