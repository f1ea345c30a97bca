"""Section 3.5, each layout against its formula in plain Python."""

import math

import pytest
import torch
from torch.testing import assert_close
from transformers import LlamaConfig, T5Config
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from vanilla_transformer.models.positions import rotate
from vanilla_transformer.models.variants import POSITIONS, load


def paper(position: int, width: int) -> list[float]:
    vector = []
    for i in range(width // 2):
        angle = position / 10000 ** (2 * i / width)
        vector += [math.sin(angle), math.cos(angle)]
    return vector


def halves(position: int, width: int) -> list[float]:
    interleaved = paper(position, width)
    return interleaved[0::2] + interleaved[1::2]


def tensor2tensor(position: int, width: int) -> list[float]:
    half = width // 2
    angles = [position * math.exp(-i * math.log(10000) / (half - 1)) for i in range(half)]
    return [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]


@pytest.mark.parametrize(
    ("name", "formula"),
    [("sinusoidal", paper), ("sinusoidal_halves", halves), ("sinusoidal_tensor2tensor", tensor2tensor)],
)
@pytest.mark.parametrize("offset", [0, 5000, 1_000_000])
def test_sinusoids_follow_their_formula_at_any_distance(make_config, name, formula, offset):
    encoding = load(POSITIONS[name])(make_config())(torch.arange(offset, offset + 4))
    expected = torch.tensor([formula(offset + t, 16) for t in range(4)], dtype=torch.float64)
    assert_close(encoding, expected, rtol=0, atol=1e-9)


def test_a_position_k_later_is_a_rotation_that_depends_on_k_alone(make_config):
    width, k = 16, 7
    encoding = load(POSITIONS["sinusoidal"])(make_config())(torch.arange(50)).unflatten(
        -1, (-1, 2)
    )  # [T, D/2, (sin, cos)]
    angles = k / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    rotation = torch.stack(
        [torch.stack([angles.cos(), angles.sin()], -1), torch.stack([-angles.sin(), angles.cos()], -1)], -2
    )  # [D/2, 2, 2]
    rotated = torch.einsum("fij,tfj->tfi", rotation, encoding[:-k])
    assert_close(rotated, encoding[k:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("offset", [5, torch.tensor(5)])
def test_a_stack_numbers_tokens_from_an_offset_up_to_the_limit(make_model, offset):
    decoder = make_model(position_encoding="learned", max_position_embeddings=10).model.decoder
    assert decoder.embed_positions.number(torch.zeros(2, 5, 16), offset).tolist() == [5, 6, 7, 8, 9]
    with pytest.raises(ValueError, match=r"sequence of 11 tokens.*10 positions.*max_position_embeddings"):
        decoder.embed_positions.number(torch.zeros(2, 6, 16), offset)


@pytest.mark.parametrize("name", POSITIONS)
def test_an_encoding_declares_its_longest_sequence(make_model, name):
    model = make_model(position_encoding=name, max_position_embeddings=40)
    assert model.longest_sequence == (40 if name == "learned" else None)


def test_rotary_positions_turn_queries_and_keys_as_llama_does(make_config):
    config = make_config(position_encoding="rotary", d_model=32)
    states, positions = torch.randn(2, 4, 6, 8), torch.tensor([0, 1, 2, 7, 100, 5000])
    cosines, sines = LlamaRotaryEmbedding(LlamaConfig(hidden_size=32, num_attention_heads=4))(states, positions[None])
    expected, _ = apply_rotary_pos_emb(states, states, cosines, sines)
    rotation = load(POSITIONS["rotary"])(config, 4).for_attention(positions, None)["rotation"]
    assert_close(rotate(states, rotation), expected, rtol=0, atol=1e-5)


def test_products_of_rotated_queries_and_keys_depend_on_their_distance_alone(make_config):
    encoding = load(POSITIONS["rotary"])(make_config(position_encoding="rotary"), 4)
    query, key = torch.randn(2, 1, 1, 1, 4)

    def product(q, k):
        turned = [
            rotate(states, encoding.for_attention(torch.tensor([position]), None)["rotation"])
            for states, position in ((query, q), (key, k))
        ]
        return (turned[0] * turned[1]).sum()

    assert_close(product(3, 10), product(53, 60), rtol=0, atol=1e-5)
    assert (product(3, 10) - product(3, 11)).abs() > 1e-3


@pytest.mark.parametrize("is_causal", [False, True])
def test_relative_positions_have_the_bias_of_t5(make_config, is_causal):
    config = make_config(position_encoding="relative", relative_attention_max_distance=50)
    encoding = load(POSITIONS["relative"])(config, 4, is_causal)
    t5 = T5Attention(
        T5Config(num_heads=4, relative_attention_max_distance=50, is_decoder=is_causal),
        has_relative_attention_bias=True,
    )
    t5.relative_attention_bias.weight.data.copy_(encoding.bias)
    positions = torch.arange(70)
    bias = encoding.for_attention(positions, positions)["position_bias"]
    assert_close(bias, t5.compute_bias(70, 70), rtol=0, atol=0)
    one_row = encoding.for_attention(positions[-1:], positions)["position_bias"]
    assert_close(one_row, bias[:, :, -1:], rtol=0, atol=0)


def test_concatenated_positions_project_embedding_and_sinusoid(make_config):
    encoding = load(POSITIONS["concatenated"])(make_config())
    embeddings = torch.randn(2, 3, 16)
    sinusoids = load(POSITIONS["sinusoidal"])(make_config())(torch.arange(3)).float()
    weight, bias = encoding.projection.weight, encoding.projection.bias
    expected = embeddings @ weight[:, :16].T + sinusoids @ weight[:, 16:].T + bias
    assert_close(encoding.encode(embeddings, torch.arange(3)), expected, rtol=0, atol=1e-5)


def test_without_positions_the_encoder_sees_a_bag_of_tokens(make_model):
    tokens, order = torch.randint(3, 23, (1, 6)), torch.randperm(6)
    encoder = make_model(position_encoding="none").model.encoder
    states, shuffled = (encoder(ids).last_hidden_state for ids in (tokens, tokens[:, order]))
    assert_close(shuffled, states[:, order], rtol=0, atol=1e-5)


def test_integers_outgrow_the_embeddings(make_config):
    encoding = load(POSITIONS["integer"])(make_config())
    assert encoding.encode(torch.zeros(1, 3, 16), torch.tensor([0, 5, 400])).amax(-1).tolist() == [[0, 5, 400]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"position_encoding": "rotary", "d_k": 3, "d_v": 4}, "d_k=3 is odd.*rotary"),
        ({"position_encoding": "relative", "relative_attention_num_buckets": 6}, "buckets=6 must be .* multiple of 4"),
        ({"position_encoding": "relative", "relative_attention_max_distance": 16}, "max_distance=16 must be greater"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make_config, fields, message):
    with pytest.raises(Exception, match=message):
        make_config(**fields)
