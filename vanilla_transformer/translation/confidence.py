"""How sure a model is of its words: a number from 0 to 1.

Without a calibration it is the probability that the model gives to a word after those before it. Models are surer or
less sure than they are right. So `vanilla calibrate` compares the probabilities with the references of a validation
set, and stores in the model's `generation_config` which share of the words with a probability the references have:

    {"calibration": {"probabilities": [0.0, 0.13, 0.52, 0.98], "confidences": [0.0, 0.31, 0.44, 0.83]}}
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .words import word_spans, words_of_tokens


CALIBRATION = "calibration"  # the key of a generation config


class Word(NamedTuple):
    """A word or punctuation mark of a translation.

    Args:
        text: The word.
        log_probability: Sum of the log-probabilities of its tokens.
        confidence: Its probability or, of a calibrated model, the share of such words that is right.
    """

    text: str
    log_probability: float
    confidence: float


@dataclass(frozen=True)
class Calibration:
    """A line through points, from the probability of a word to its confidence; neither ever falls.

    Args:
        probabilities: The probabilities of the points.
        confidences: Their confidences.
    """

    probabilities: Sequence[float] = (0.0, 1.0)
    confidences: Sequence[float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        for values in (self.probabilities, self.confidences):
            numbers = [value for value in values if isinstance(value, int | float) and 0 <= value <= 1]
            rises = len(numbers) == len(values) and all(low <= high for low, high in pairwise(numbers))
            if not numbers or not rises or len(self.probabilities) != len(self.confidences):
                raise ValueError(
                    f"{CALIBRATION} in the model's generation config holds {values!r:.60}, not as many probabilities "
                    "as confidences, from 0 to 1 and rising: write it again with vanilla calibrate."
                )

    def __call__(self, probability: float) -> float:
        return float(np.interp(probability, self.probabilities, self.confidences))


def calibration_of(generation_config: Any) -> Calibration | None:
    """Returns the calibration that a model brings along; `None` if it has none."""
    stored = getattr(generation_config, CALIBRATION, None)
    if stored is None:
        return None
    points = stored if isinstance(stored, dict) else {}
    return Calibration(points.get("probabilities", ()), points.get("confidences", ()))


def words_of(
    text: str, tokens: Sequence[str], log_probabilities: Sequence[float], calibration: Calibration | None
) -> tuple[Word, ...]:
    """Returns the words of a translation with the probabilities of their tokens. The end of sentence is no word."""
    spans = word_spans(text)
    totals = [0.0] * len(spans)
    for owner, log_probability in zip(words_of_tokens(tokens, text), log_probabilities, strict=True):
        if owner is not None:
            totals[owner] += log_probability
    confidence = calibration or Calibration()
    return tuple(
        Word(text[start:end], total, confidence(math.exp(total)))
        for (start, end), total in zip(spans, totals, strict=True)
    )
