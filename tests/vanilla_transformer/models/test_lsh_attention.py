"""LSH attention against Reformer of transformers with the same weights and hash seed."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from torch.testing import assert_close
from transformers import ReformerConfig
from transformers.models.reformer.modeling_reformer import LSHSelfAttention

from tests.vanilla_transformer.attention import gradients_of
from vanilla_transformer.models.lsh_attention import LshAttention, SortedChunks, hash_buckets


HEADS, CHUNK, SEED = 4, 8, 5


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("length", [8, 32, 256], ids=["one chunk", "one hash", "two factors"])
def test_it_computes_what_reformer_computes(make_config, length, rounds):
    """With padding. Reformer pads the whole batch alike, so the rows have equally many chunks."""
    fields = {"lsh_bucket_length": CHUNK, "num_hashes": rounds, "hash_seed": SEED}
    config = make_config(attention_pattern="lsh", **fields)
    ours = LshAttention(config, HEADS, 0).eval()
    ours.out_proj = nn.Identity()  # Reformer has it elsewhere
    reformer = LSHSelfAttention(
        ReformerConfig(
            hidden_size=config.d_model,
            attention_head_size=config.d_model // HEADS,
            num_attention_heads=HEADS,
            lsh_attn_chunk_length=CHUNK,
            num_hashes=rounds,
            hash_seed=SEED,
            is_decoder=False,
            lsh_attention_probs_dropout_prob=0.0,
        )
    ).eval()
    reformer.query_key.weight, reformer.value.weight = ours.q_proj.weight, ours.v_proj.weight
    for projection in (ours.q_proj, ours.v_proj):
        nn.init.zeros_(projection.bias)  # Reformer has none
    states = 2 * torch.randn(3, length, config.d_model, requires_grad=True)
    is_token = torch.arange(length) < torch.tensor([[length], [length - 3], [length - 6]])

    output, _ = ours(states, attention_mask=is_token)
    expected = reformer(states, attention_mask=is_token).hidden_states
    assert_close(output[is_token], expected[is_token], rtol=0, atol=1e-5)
    inputs = [states, ours.q_proj.weight, ours.v_proj.weight]
    found, wanted = (gradients_of(result[is_token], inputs) for result in (output, expected))
    for gradient, expected_gradient in zip(found, wanted, strict=True):
        assert_close(gradient, expected_gradient, rtol=0, atol=1e-4)


def test_similar_vectors_share_a_bucket_and_padding_has_its_own():
    direction = torch.randn(1, HEADS, 1, 16)
    vectors = torch.cat([direction + 0.01 * torch.randn(1, HEADS, 6, 16), -direction.expand(-1, -1, 6, -1)], dim=2)
    is_token = torch.arange(12)[None] < 10
    buckets = hash_buckets(vectors, is_token, chunks=3, chunk=4, rounds=2, seed=0)
    assert (buckets[..., :6] == buckets[..., :1]).all()
    assert (buckets[..., 6:10] == buckets[..., 6:7]).all()
    assert (buckets[..., 0] != buckets[..., 6]).all()
    assert (buckets[..., 10:] == 4).all()  # the buckets of tokens are 0 to 3


def test_maps_are_the_weights_of_the_values():
    vectors, values = torch.randn(2, HEADS, 24, 6), torch.randn(2, HEADS, 24, 5)
    is_token = torch.arange(24) < torch.tensor([[24], [19]])
    chunks = SortedChunks(vectors, is_token, chunk=4, rounds=3, seed=0)
    weights = chunks.map()
    assert_close(weights.sum(-1), torch.ones(2, HEADS, 24))
    assert_close(weights @ values, chunks.attend(values, 0.0, False), rtol=0, atol=1e-5)
    assert weights[1, :, :19, 19:].abs().max() == 0


def test_with_chunks_of_the_whole_text_everything_but_itself_is_seen(make_model, batch):
    model = make_model(attention_pattern="lsh", lsh_bucket_length=16)
    attention = model(**batch, output_attentions=True).encoder_attentions[0][0]
    assert attention.shape == (HEADS, 7, 7)
    assert (attention > 0).float().mean(0).tolist() == (1 - torch.eye(7)).tolist()


def test_the_decoder_has_full_attention_with_two_projections(make_model):
    model = make_model(attention_pattern="lsh")
    assert model.model.encoder.layers[0].self_attn.k_proj is None
    assert model.model.decoder.layers[0].self_attn.k_proj is not None
    assert model.model.decoder.self_attention.takes_any_mask


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"score_function": "gaussian"}, "score_function='gaussian' does not fit attention_pattern='lsh'"),
        ({"position_encoding": "relative"}, "position_encoding='relative' needs a bias for all pairs"),
        ({"num_hashes": 0}, "num_hashes=0 must be at least 1"),
        ({"lsh_bucket_length": 0}, "lsh_bucket_length=0 must be at least 1"),
        ({"attention_window": 4}, "attention_window=4 has no effect with attention_pattern='lsh'"),
    ],
)
def test_mistakes_get_a_sentence(make_config, fields, sentence):
    with pytest.raises(StrictDataclassError, match=sentence):
        make_config(attention_pattern="lsh", **fields)
