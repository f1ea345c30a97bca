"""Section 3.5, each layout against its formula in plain Python."""

import math

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.positions import POSITIONS


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
    encoding = POSITIONS[name](make_config())(torch.arange(offset, offset + 4))
    expected = torch.tensor([formula(offset + t, 16) for t in range(4)], dtype=torch.float64)
    assert_close(encoding, expected, rtol=0, atol=1e-9)


def test_a_position_k_later_is_a_rotation_that_depends_on_k_alone(make_config):
    width, k = 16, 7
    encoding = POSITIONS["sinusoidal"](make_config())(torch.arange(50)).unflatten(-1, (-1, 2))  # [T, D/2, (sin, cos)]
    angles = k / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    rotation = torch.stack(
        [torch.stack([angles.cos(), angles.sin()], -1), torch.stack([-angles.sin(), angles.cos()], -1)], -2
    )  # [D/2, 2, 2]
    rotated = torch.einsum("fij,tfj->tfi", rotation, encoding[:-k])
    assert_close(rotated, encoding[k:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("offset", [5, torch.tensor(5)])
def test_a_stack_numbers_tokens_from_an_offset_up_to_the_limit(make_model, offset):
    decoder = make_model(position_encoding="learned", max_position_embeddings=10).model.decoder
    assert decoder.number(torch.zeros(2, 5, 16), offset).tolist() == [5, 6, 7, 8, 9]
    with pytest.raises(ValueError, match=r"sequence of 11 tokens.*10 positions.*max_position_embeddings"):
        decoder.number(torch.zeros(2, 6, 16), offset)


@pytest.mark.parametrize("name", POSITIONS)
def test_an_encoding_declares_its_longest_sequence(make_model, name):
    model = make_model(position_encoding=name, max_position_embeddings=40)
    assert model.longest_sequence == (40 if name == "learned" else None)
