"""What leaks without masks: later tokens, padding, and a token whose scores alone are masked."""

import pytest

from vanilla_transformer.scripts.explain import copying, masking


def test_the_causal_mask_hides_later_inputs_and_shows_the_current_one():
    hidden, shown = (masking.influence(copying.make_model(is_causal=is_causal)) for is_causal in (True, False))
    assert hidden.triu(1).abs().max() == 0
    assert hidden.diagonal().min() > 0  # the input at a position is the token before the predicted one
    assert shown.triu(1).sum() > 0


def test_padding_changes_nothing_behind_its_mask():
    for number in (1, 4):
        assert masking.moved_by_padding(number, is_masked=True) < 1e-6
        assert masking.moved_by_padding(number, is_masked=False) > 1e-3


def test_masked_scores_do_not_hide_a_token_at_its_own_place():
    rows = masking.hidden_token().rows
    assert rows["scores of the token are masked"]["elsewhere"] == 0
    assert rows["scores of the token are masked"]["at its own place"] > 1
    assert set(rows["token is replaced"].values()) == {0}


@pytest.mark.slow
def test_a_decoder_that_sees_later_tokens_cannot_translate():
    """Its training loss is as low, because it copies the answer from its input."""
    right = {}
    for is_causal in (True, False):
        model = copying.make_model(is_causal=is_causal)
        assert copying.learn(model, copying.batches(), 400)[-1] < 0.1
        right[is_causal] = copying.right_tokens(model)
    assert right[True] > 0.95
    assert right[False] < 0.6


def test_the_topic_runs(quick):
    leaks, padding, tokens = masking.explain(quick).tables
    assert leaks.rows[masking.CAUSAL]["influence of later tokens"] == 0
    assert len(padding.rows) == 2
    assert len(tokens.rows) == 3
