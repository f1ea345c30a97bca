"""Attention weights of a translation, and a web page to explore them.

The page needs only a browser: no matplotlib and no network.
"""

import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import torch


@dataclass(frozen=True)
class AttentionMaps:
    """The weights of one kind of attention, in all layers and heads.

    Args:
        kind: The kind, for example "cross attention".
        weights: [layers, heads, rows, columns]; each row is a distribution over the columns.
        rows: The tokens that attend.
        columns: The tokens that are attended to.
        rows_are: What a row is, for the axis label.
        columns_are: What a column is, for the axis label.
    """

    kind: str
    weights: torch.Tensor
    rows: Sequence[str]
    columns: Sequence[str]
    rows_are: str
    columns_are: str

    def __post_init__(self) -> None:
        if tuple(self.weights.shape[2:]) != (len(self.rows), len(self.columns)):
            raise ValueError(
                f"The {self.kind} has shape {list(self.weights.shape)}, but {len(self.rows)} tokens attend to "
                f"{len(self.columns)}: only full attention can be drawn, where every token may attend to all others."
            )


def render_page(kinds: Sequence[AttentionMaps], title: str) -> str:
    """A self-contained HTML page: menus choose kind, layer and head, and the mouse shows each weight.

    The page holds the weights as JSON, with all digits of float32. Its script inserts tokens as text, never as HTML.

    Args:
        kinds: The kinds of attention to choose from.
        title: Title and heading of the page.
    """
    data = [
        {
            "kind": maps.kind,
            "rows": list(maps.rows),
            "columns": list(maps.columns),
            "rows_are": maps.rows_are,
            "columns_are": maps.columns_are,
            "weights": _shortest_numbers(maps.weights),
        }
        for maps in kinds
    ]
    # "<" is escaped, so that no token can end the script element that holds the JSON.
    embedded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts = {"@title@": html.escape(title), "@data@": embedded}
    page = files("vanilla_transformer.training.reports").joinpath("attention_page.html").read_text(encoding="utf-8")
    return re.sub("|".join(parts), lambda match: parts[match[0]], page)


def _shortest_numbers(weights: torch.Tensor) -> list[Any]:
    """Nested lists of the shortest decimals that round to the same float32: 0.1, not 0.10000000149011612."""
    return weights.float().numpy().astype(str).astype(float).tolist()
