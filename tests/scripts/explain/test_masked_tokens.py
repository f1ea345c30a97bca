"""A hidden token must be gone from the input: blocked attention leaves it in the residual connection."""

import pytest
import torch

from vanilla_transformer.scripts.explain import masked_tokens
from vanilla_transformer.scripts.explain.explanation import ExplainArguments


@pytest.fixture(scope="module")
def rows(quick):
    (table,) = masked_tokens.explain(quick).tables
    return table.rows


def test_the_topic_has_a_row_for_each_way(rows):
    assert list(rows) == list(masked_tokens.WAYS)


@pytest.fixture
def batch():
    ids = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 11, 2, 0]])
    chosen = torch.zeros_like(ids, dtype=torch.bool)
    chosen[0, 1] = chosen[1, 2] = True
    return masked_tokens.Batch(ids, chosen, ids == 0)


class Words(list):
    """As much of a tokenizer as a filler needs."""

    mask_token_id = 22


def test_only_a_replaced_token_can_not_reach_its_own_prediction(batch):
    filler = masked_tokens.make_filler(Words(range(23)))
    filler.encoder.eval()
    other = masked_tokens.Batch(batch.ids.masked_fill(batch.chosen, 12), batch.chosen, batch.padding)
    for way in masked_tokens.WAYS:
        same = torch.allclose(filler.logits(batch, way), filler.logits(other, way), atol=1e-6)
        assert same == (way == masked_tokens.REPLACED), way


def test_a_foreign_context_keeps_the_chosen_tokens_and_the_words(batch):
    foreign = masked_tokens.in_foreign_context(batch)
    assert torch.equal(foreign.ids[batch.chosen], batch.ids[batch.chosen])
    assert foreign.ids.flatten().sort().values.tolist() == batch.ids.flatten().sort().values.tolist()
    assert not torch.equal(foreign.ids, batch.ids)


@pytest.mark.slow
def test_only_the_model_with_replaced_tokens_learns_to_fill_them_in_and_only_it_needs_the_context():
    (table,) = masked_tokens.explain(ExplainArguments()).tables
    replaced, blocked, nothing = table.rows.values()
    assert replaced[masked_tokens.HIDDEN] > 4 * max(blocked[masked_tokens.HIDDEN], nothing[masked_tokens.HIDDEN])
    assert replaced[masked_tokens.FOREIGN] < replaced[masked_tokens.OWN] / 2
    for row in (blocked, nothing):
        assert row[masked_tokens.FOREIGN] > 0.9
