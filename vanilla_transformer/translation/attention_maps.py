"""Attention of a translation as data for pages: between words, and in every layer and head.

The server sends it as JSON (`/attention`), `vanilla attention` writes it into a page. `web/drawing.js` draws both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vanilla_transformer.translation.translator import Hypothesis
from vanilla_transformer.translation.words import END, pharaoh, spelled, word_attention


if TYPE_CHECKING:
    from vanilla_transformer.engines.engine import Array


Tokens = tuple[str, ...]
MAX_TOKENS = 128  # with more, a map of every head is unreadable and takes megabytes


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
        explanation: One sentence for readers who do not know the paper.
    """

    kind: str
    weights: "Array"
    rows: Sequence[str]
    columns: Sequence[str]
    rows_are: str
    columns_are: str
    explanation: str = ""

    def __post_init__(self) -> None:
        if tuple(self.weights.shape[2:]) != (len(self.rows), len(self.columns)):
            raise ValueError(
                f"The {self.kind} has shape {list(self.weights.shape)}, but {len(self.rows)} tokens attend to "
                f"{len(self.columns)}: only full attention can be drawn, where every token may attend to all others."
            )


def maps_of(hypothesis: Hypothesis) -> list[AttentionMaps]:
    """The kinds of attention of a translation, as far as its model and its engine have them."""
    source, written, read = hypothesis.source_tokens, hypothesis.tokens, hypothesis.read_tokens
    reading, writing = "source token that attends", "token being written"
    read_from, written_before = "source token attended to", "token the decoder has read"
    kinds: list[tuple[str, Array | None, Tokens, Tokens, str, str, str]] = [
        (
            *("encoder self-attention", hypothesis.encoder_attention, source, source, reading, read_from),
            "While reading, each token of the text gathers what it needs from the other tokens of the text.",
        ),
        (
            *("decoder self-attention", hypothesis.decoder_attention, written, read, writing, written_before),
            "While writing, each new token looks back at the tokens that were written before it.",
        ),
        (
            *("cross attention", hypothesis.attention, written, source, writing, read_from),
            "Each token of the translation looks at the tokens of the text that it is a translation of.",
        ),
    ]
    return [
        AttentionMaps(kind, weights, rows, columns, rows_are, columns_are, explanation)
        for kind, weights, rows, columns, rows_are, columns_are, explanation in kinds
        if weights is not None
    ]


def attention_data(sentence: str, hypothesis: Hypothesis, *, heads: bool = True) -> dict[str, Any]:
    """What `drawAttention` draws: words with their weights and, if wanted, all layers and heads.

    Args:
        sentence: The text that was translated.
        hypothesis: Its translation, with attention.
        heads: Whether to add every layer and head.
    """
    words = word_attention(sentence, hypothesis)
    data: dict[str, Any] = {
        "sentence": sentence,
        "translation": hypothesis.text,
        "source": [*spelled(sentence, words.source), END],
        "target": spelled(hypothesis.text, words.target),
        "weights": _rounded(words.weights),
        "alignment": pharaoh(words.alignment),
    }
    if heads:
        data["heads"] = [{**vars(maps), "weights": _rounded(maps.weights)} for maps in maps_of(hypothesis)]
    return data


def _rounded(weights: "Array") -> list[Any]:
    return np.asarray(weights, np.float64).round(4).tolist()
