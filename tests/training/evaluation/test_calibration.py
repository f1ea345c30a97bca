import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanilla_transformer.training.evaluation.calibration import (
    area_under_curve,
    calibration_error,
    fit_calibration,
    right_words,
)
from vanilla_transformer.translation.confidence import Word


def test_the_expected_calibration_error_is_that_of_its_definition():
    """By hand: bin 0.9-1 has 2 of 4 words, confidence 0.95, 50% right; bin 0.2-0.3 has the others, 0.25, 0% right."""
    error = calibration_error([0.95, 0.95, 0.25, 0.25], [True, False, False, False])
    assert error == pytest.approx(2 / 4 * abs(0.95 - 0.5) + 2 / 4 * abs(0.25 - 0.0))
    assert calibration_error([1.0, 0.0], [True, False]) == 0


def test_a_reference_has_each_of_its_words_once():
    words = [Word(text, 0.0, 1.0) for text in ("Ein", "Hund", "und", "ein", "Hund", ".")]
    assert right_words(words, "Ein Hund schläft.") == [True, True, False, False, False, True]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=300))
def test_a_fit_never_falls_and_is_right_on_average(pairs):
    probabilities, right = zip(*pairs, strict=True)
    calibration = fit_calibration(probabilities, right)
    line = [calibration(p) for p in np.linspace(0, 1, 50)]
    assert line == sorted(line)
    assert all(0 <= value <= 1 for value in line)
    assert min(calibration.confidences) <= np.mean(right) + 1e-4 <= max(calibration.confidences) + 2e-4


def test_a_fit_repairs_a_model_that_is_too_sure():
    random = np.random.default_rng(0)
    probabilities = random.random(20_000)
    right = random.random(20_000) < probabilities**2  # surer than right
    calibration = fit_calibration(probabilities[::2], right[::2])
    before = calibration_error(probabilities[1::2], right[1::2])
    after = calibration_error([calibration(p) for p in probabilities[1::2]], right[1::2])
    assert before > 0.15
    assert after < 0.02


def test_the_area_is_the_share_of_pairs_in_order():
    assert area_under_curve([3.0, 1.0], [2.0, 1.0]) == (1 + 1 + 0 + 0.5) / 4
    with pytest.raises(ValueError, match="no words to calibrate"):
        fit_calibration([], [])
