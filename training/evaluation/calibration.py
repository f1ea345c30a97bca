"""Fitting a model's confidence to a validation set, and measuring how far it can be trusted.

A word of a translation counts as right if the reference has it, each word of the reference once. With one reference,
a good word may count as wrong: the confidence that is fitted is a lower bound.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from vanilla_transformer.translation.confidence import Calibration, Word
from vanilla_transformer.translation.words import spelled, word_spans


LARGEST_STEPS = 50  # of the calibration: groups of words with similar probabilities


def right_words(words: Sequence[Word], reference: str) -> list[bool]:
    """Returns which words of a translation the reference has."""
    left = Counter(spelled(reference, word_spans(reference)))
    right = []
    for word in words:
        right.append(left[word.text] > 0)
        left[word.text] -= 1
    return right


def fit_calibration(probabilities: Sequence[float], right: Sequence[bool]) -> Calibration:
    """Fits confidences that rise with the probability: isotonic regression of groups of equal size.

    Args:
        probabilities: Those of all words.
        right: Which words are right.
    """
    if len(probabilities) == 0:
        raise ValueError("There are no words to calibrate with: give pairs whose translations are not empty.")
    order = np.argsort(probabilities, kind="stable")
    blocks: list[np.ndarray] = []  # [words, sum of probabilities, number of right words]
    for group in np.array_split(order, min(LARGEST_STEPS, len(order))):
        blocks.append(np.array([len(group), np.take(probabilities, group).sum(), np.take(right, group).sum()]))
        # Pool adjacent violators: a group that is right less often than the one before is joined with it.
        while len(blocks) > 1 and blocks[-1][2] / blocks[-1][0] <= blocks[-2][2] / blocks[-2][0]:
            last = blocks.pop()
            blocks[-1] = blocks[-1] + last
    points = np.array([[total / words, share / words] for words, total, share in blocks]).round(4).clip(0, 1)
    return Calibration(points[:, 0].tolist(), points[:, 1].tolist())


def calibration_error(confidences: Sequence[float], right: Sequence[float], bins: int = 10) -> float:
    """Returns the expected calibration error (Guo et al. 2017, "On Calibration of Modern Neural Networks"): the mean
    distance, over bins of equal width, of the mean confidence and the share that is right."""
    confidence, outcome = np.asarray(confidences, float), np.asarray(right, float)
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_of, confidence - outcome, bins)
    return float(np.abs(gaps).sum() / len(confidence))


def area_under_curve(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Returns the probability that one of `higher` is larger than one of `lower`; equal ones count half."""
    ours, theirs = np.asarray(higher)[:, None], np.asarray(lower)[None]
    return float(((ours > theirs) + (ours == theirs) / 2).mean())
