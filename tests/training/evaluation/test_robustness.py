"""Robustness: the forms of a test set, and what a system loses in each."""

import pytest

from vanilla_transformer.training.data.augmentation import FORMS, TWO_SENTENCES, Pair
from vanilla_transformer.training.evaluation.robustness import CLEAN, forms_of, measure_robustness


PAIRS = [
    Pair(f"The dog number {n} runs over the green grass.", f"Der Hund {n} rennt über das Gras.") for n in range(9)
]


def test_every_form_has_the_whole_test_set_and_is_the_same_at_every_call():
    forms = forms_of(PAIRS)
    assert set(forms) == {CLEAN, *FORMS, TWO_SENTENCES} - {"copied", "one_clause"}
    assert {len(pairs) for pairs in forms.values()} == {9}
    assert forms == forms_of(PAIRS)
    assert forms[TWO_SENTENCES][8].target == f"{PAIRS[8].target} {PAIRS[0].target}"


def test_a_system_that_knows_only_clean_text_loses_what_is_measured():
    known = dict(PAIRS)
    found = measure_robustness(PAIRS, lambda texts: [known.get(text, "nichts") for text in texts])
    assert found[CLEAN]["score"] == pytest.approx(100)
    assert found[CLEAN]["lost"] == 0
    for form in ("upper_case", "lower_case", "typos", TWO_SENTENCES):
        assert found[form]["lost"] > 0.9, form


def test_case_is_left_out_where_case_is_what_changed():
    known = {pair.source.lower(): pair.target for pair in PAIRS}
    found = measure_robustness(PAIRS, lambda texts: [known.get(text.lower(), "nichts") for text in texts])
    assert found["upper_case"]["score"] < 50
    assert found["upper_case"]["lost"] == pytest.approx(0)
