"""Under autocast on a CPU, every pattern attends in float32: torch's backward pass is very slow in bfloat16 there."""

import pytest
import torch
from transformers import AttentionInterface
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


PATTERNS = [
    {},
    {"attention_pattern": "window", "attention_window": 4},
    {"attention_pattern": "longformer", "attention_window": 4},
]


@pytest.fixture
def attended_types(monkeypatch):
    """The types of the queries, keys and values that SDPA is given."""
    types = set()
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def attend(module, query, key, value, *args, **kwargs):
        types.update((query.dtype, key.dtype, value.dtype))
        return sdpa(module, query, key, value, *args, **kwargs)

    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", attend)
    return types


@pytest.mark.parametrize("fields", PATTERNS, ids=lambda fields: fields.get("attention_pattern", "full"))
def test_attention_is_in_float32_under_autocast(make_model, batch, attended_types, fields):
    model = make_model(**fields, dropout=0.0, attn_implementation="sdpa").train()
    expected = gradient(model, batch)
    attended_types.clear()
    with torch.autocast("cpu", torch.bfloat16):
        assert model.model.encoder.layers[0].self_attn.q_proj(torch.randn(1, 16)).dtype == torch.bfloat16
        found = gradient(model, batch)
    assert attended_types == {torch.float32}
    assert (found - expected).norm() < 0.1 * expected.norm()


def gradient(model, batch):
    model.zero_grad()
    model(**batch).loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
