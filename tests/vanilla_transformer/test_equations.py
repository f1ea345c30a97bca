"""The paper's equations and claims, each as a test of its own."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vanilla_transformer import PRESETS, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.modeling_vanilla_transformer import (
    ScaledDotProduct,
    VanillaTransformerAttention,
    VanillaTransformerEncoderLayer,
    VanillaTransformerFeedForward,
    eager_attention_forward,
)


def test_scaled_dot_product_attention_by_its_formula():
    """Section 3.2.1, one query, one key and one product at a time."""
    query, key, value = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 7)
    visible = torch.rand(2, 1, 4, 6) > 0.3
    visible[..., 0] = True
    mask = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))
    module = nn.Module()
    module.score = ScaledDotProduct(VanillaTransformerConfig(), num_heads=3, d_k=5)
    output, weights = eager_attention_forward(module, query, key, value, mask, scaling=module.score.scaling)

    for b in range(2):
        for h in range(3):
            for t in range(4):
                scores = [
                    math.exp(sum(query[b, h, t, i].item() * key[b, h, s, i].item() for i in range(5)) / math.sqrt(5))
                    * visible[b, 0, t, s].item()
                    for s in range(6)
                ]
                shares = torch.tensor([score / sum(scores) for score in scores])
                assert_close(weights[b, h, t], shares, rtol=1e-5, atol=1e-6)
                expected = sum(share * value[b, h, s] for s, share in enumerate(shares))
                assert_close(output[b, t, h], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("d_k", [16, 64, 256])
def test_the_scale_keeps_the_variance_of_scores_at_one(d_k):
    """Section 3.2.1, footnote 4: the dot product of two vectors of unit-variance components has variance d_k."""
    query, key = torch.randn(1, 1, 400, d_k), torch.randn(1, 1, 400, d_k)
    scores = torch.matmul(query, key.transpose(-2, -1))
    assert scores.var().item() == pytest.approx(d_k, rel=0.1)
    assert (scores * d_k**-0.5).var().item() == pytest.approx(1, rel=0.1)


def test_multi_head_attention_is_its_heads_side_by_side(make_config):
    """Section 3.2.2: Concat(head_1 .. head_h) W^O with head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)."""
    config = make_config(d_k=3, d_v=5, attn_implementation="eager")
    attention = VanillaTransformerAttention(config, num_heads=4, layer_idx=0)
    queries, memory = torch.randn(2, 6, 16), torch.randn(2, 8, 16)
    heads = []
    for i in range(4):
        keys, values = slice(3 * i, 3 * i + 3), slice(5 * i, 5 * i + 5)
        q = queries @ attention.q_proj.weight[keys].T + attention.q_proj.bias[keys]
        k = memory @ attention.k_proj.weight[keys].T + attention.k_proj.bias[keys]
        v = memory @ attention.v_proj.weight[values].T + attention.v_proj.bias[values]
        heads.append(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(3), dim=-1) @ v)
    expected = torch.cat(heads, dim=-1) @ attention.out_proj.weight.T + attention.out_proj.bias
    actual, _ = attention(queries, encoder_hidden_states=memory)
    assert_close(actual, expected, rtol=1e-5, atol=1e-6)


def test_feed_forward_by_its_formula(make_config):
    """Section 3.3: FFN(x) = max(0, x W1 + b1) W2 + b2."""
    ffn = VanillaTransformerFeedForward(make_config(), 32)
    x = torch.randn(2, 3, 16)
    inner = (x @ ffn.fc1.weight.T + ffn.fc1.bias).clamp(min=0)
    assert_close(ffn(x), inner @ ffn.fc2.weight.T + ffn.fc2.bias)


@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_a_sublayer_is_wrapped_as_the_paper_says(make_config, norm_placement):
    """Section 3.1: LayerNorm(x + Sublayer(x)); or, pre-norm, x + Sublayer(LayerNorm(x))."""
    layer = VanillaTransformerEncoderLayer(make_config(norm_placement=norm_placement), layer_idx=0).eval()
    x = torch.randn(2, 3, 16)
    norm = layer.feed_forward_residual.norm
    if norm_placement == "post":
        expected = norm(x + layer.feed_forward(x))
    else:
        expected = x + layer.feed_forward(norm(x))
    assert_close(layer.feed_forward_residual(x, layer.feed_forward), expected)


def test_without_positions_the_encoder_does_not_see_order(make_model):
    """Section 3.5: attention alone is equivariant to permutations of its input."""
    model = make_model(position_encoding="learned")
    permutation = torch.randperm(7)
    input_ids = torch.randint(3, 23, (2, 7))
    encoder = model.model.encoder

    with_positions = encoder(input_ids).last_hidden_state[:, permutation]
    assert not torch.allclose(encoder(input_ids[:, permutation]).last_hidden_state, with_positions, atol=1e-3)
    nn.init.zeros_(encoder.embed_positions.weight)
    without = encoder(input_ids).last_hidden_state[:, permutation]
    assert_close(encoder(input_ids[:, permutation]).last_hidden_state, without, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_changed_future_token_changes_no_earlier_logit(make_model, batch, attention):
    """Section 3.2.3: the decoder is auto-regressive."""
    model = make_model(attn_implementation=attention)
    decoder_input_ids = torch.randint(3, 23, (3, 6))
    inputs = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    before = model(**inputs, decoder_input_ids=decoder_input_ids).logits
    for position in range(6):
        changed = decoder_input_ids.clone()
        changed[:, position] = (changed[:, position] - 3 + 1) % 20 + 3
        after = model(**inputs, decoder_input_ids=changed).logits
        assert_close(after[:, :position], before[:, :position], rtol=0, atol=0)
        assert not torch.allclose(after[:, position], before[:, position], atol=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_a_sentence_alone_and_in_a_padded_batch_agree(make_model, batch, attention, norm_placement):
    model = make_model(attn_implementation=attention, norm_placement=norm_placement)
    together = model(**batch).logits
    for row in range(3):
        source = batch["input_ids"][row, batch["attention_mask"][row] == 1]
        labels = batch["labels"][row, batch["labels"][row] != -100]
        alone = model(input_ids=source[None], labels=labels[None]).logits[0]
        assert_close(together[row, : len(labels)], alone, rtol=1e-4, atol=1e-5)


# Table 3's rows at a vocabulary of 37,000, tied, with biases; in millions.
TABLE_3 = {
    **{"base": 63.08, "A-h1": 63.08, "A-h4": 63.08, "A-h16": 63.08, "A-h32": 63.08, "B-dk16": 55.99, "B-dk32": 58.35},
    **{"C-N2": 33.66, "C-N4": 48.37, "C-N8": 77.80, "C-d256": 26.83, "C-d1024": 163.89, "C-ff1024": 50.49},
    **{"C-ff4096": 88.27, "big": 214.25},
}


def parameters_by_formula(config: VanillaTransformerConfig) -> int:
    d, ffn, layers, heads = (
        config.d_model,
        config.encoder_ffn_dim,
        config.encoder_layers,
        config.encoder_attention_heads,
    )
    d_k, d_v = config.d_k or d // heads, config.d_v or d // heads
    attention = 2 * heads * d_k * (d + 1) + heads * d_v * (d + 1) + (heads * d_v + 1) * d
    feed_forward = (d + 1) * ffn + (ffn + 1) * d
    norm = 2 * d
    encoder = layers * (attention + feed_forward + 2 * norm)
    decoder = layers * (2 * attention + feed_forward + 3 * norm)
    positions = 2 * config.max_position_embeddings * d if config.position_encoding == "learned" else 0
    return config.vocab_size * d + encoder + decoder + positions


@pytest.mark.parametrize("preset", PRESETS)
def test_the_number_of_parameters_is_the_formulas(preset):
    config = VanillaTransformerConfig.from_preset(preset)
    with torch.device("meta"):
        model = VanillaTransformerForConditionalGeneration(config)
    assert model.num_parameters() == parameters_by_formula(config)
    if preset in TABLE_3:
        assert round(model.num_parameters() / 1e6, 2) == TABLE_3[preset]
