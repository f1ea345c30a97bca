"""Every score function against its formula, in plain loops."""

import math

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.models.variants import SCORES, load


B, H, T, S, D = 2, 4, 3, 5, 4


def by_hand(score, formula):
    """Scores of random queries and keys, by the module and by a formula of (head, query, key), with gradients."""
    query, key = torch.randn(B, H, T, D, requires_grad=True), torch.randn(B, H, S, D, requires_grad=True)
    inputs = [query, key, *score.parameters()]
    scores = score(query, key)
    rows = [[[[formula(h, query[b, h, t], key[b, h, s]) for s in range(S)] for t in range(T)] for h in range(H)]
            for b in range(B)]  # fmt: skip
    expected = torch.stack([torch.stack([torch.stack([torch.stack(r) for r in h]) for h in b]) for b in rows])
    weights = torch.randn_like(expected)
    gradients = [
        torch.autograd.grad((values * weights).sum(), inputs, retain_graph=True) for values in (scores, expected)
    ]
    return scores, expected, *gradients


@pytest.fixture
def make_score(make_config):
    def make(name):
        score = load(SCORES[name])(make_config(), H, D)
        for parameter in score.parameters():
            torch.nn.init.normal_(parameter)
        return score

    return make


FORMULAS = {
    "scaled_dot": lambda score: lambda h, q, k: (q * k).sum() / math.sqrt(D),
    "dot": lambda score: lambda h, q, k: (q * k).sum(),
    "additive": lambda score: lambda h, q, k: (score.weight[h] * torch.tanh(q + k)).sum(),
    "gaussian": lambda score: lambda h, q, k: -(((q - k) * score.width[h]) ** 2).sum() / 2,
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_and_gradients_follow_the_formula(make_score, name):
    score = make_score(name)
    scores, expected, gradients, expected_gradients = by_hand(score, FORMULAS[name](score))
    assert_close(scores, expected, rtol=0, atol=1e-5)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert_close(gradient, expected_gradient, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["scaled_dot", "dot"])
def test_fused_kernels_compute_the_dot_products(make_model, batch, name):
    model = make_model(score_function=name)
    fused = model(**batch).logits
    assert model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    assert_close(model(**batch).logits, fused, rtol=0, atol=1e-5)


def test_gaussian_attention_is_nadaraya_watson_regression(make_score):
    """One head, one feature: the output at x is the mean of the y_i, weighted by a Gaussian kernel around x."""
    score = make_score("gaussian")
    torch.nn.init.constant_(score.width, 1.7)
    xs, ys, x = torch.rand(40) * 5, torch.randn(40), torch.rand(9) * 5
    weights = score(x.expand(H, -1)[..., None], xs.expand(H, -1)[..., None]).softmax(-1)  # [H, 9, 40]
    for row, query in enumerate(x.tolist()):
        kernel = [math.exp(-(((query - key) * 1.7) ** 2) / 2) for key in xs.tolist()]
        expected = sum(k * y for k, y in zip(kernel, ys.tolist(), strict=True)) / sum(kernel)
        assert_close(weights[0, row] @ ys, torch.tensor(expected), rtol=0, atol=1e-5)


def test_one_projection_for_queries_and_keys(make_model, batch):
    model = make_model(key_projection="shared")
    assert not [name for name in model.state_dict() if "k_proj" in name]
    attention = model.model.encoder.layers[0].self_attn
    plain = make_model().model.encoder.layers[0].self_attn
    plain.load_state_dict({**attention.state_dict(), "k_proj.weight": attention.q_proj.weight,
                           "k_proj.bias": attention.q_proj.bias})  # fmt: skip
    states = torch.randn(2, 5, 16)
    assert_close(attention(states)[0], plain(states)[0], rtol=0, atol=0)
