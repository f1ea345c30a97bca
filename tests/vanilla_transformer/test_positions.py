"""Section 3.5, each layout against its formula in plain Python."""

import math

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.positions import POSITIONS


CPU = torch.device("cpu")


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
    encoding = POSITIONS[name](make_config())(4, offset, CPU)
    expected = torch.tensor([formula(offset + t, 16) for t in range(4)], dtype=torch.float64)
    assert_close(encoding, expected, rtol=0, atol=1e-9)


def test_a_position_k_later_is_a_rotation_that_depends_on_k_alone(make_config):
    width, k = 16, 7
    encoding = POSITIONS["sinusoidal"](make_config())(50, 0, CPU).unflatten(-1, (-1, 2))  # [T, D/2, (sin, cos)]
    angles = k / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    rotation = torch.stack(
        [torch.stack([angles.cos(), angles.sin()], -1), torch.stack([-angles.sin(), angles.cos()], -1)], -2
    )  # [D/2, 2, 2]
    rotated = torch.einsum("fij,tfj->tfi", rotation, encoding[:-k])
    assert_close(rotated, encoding[k:], rtol=0, atol=1e-12)


def test_a_tensor_offset_is_an_offset(make_config):
    for name in POSITIONS:
        positions = POSITIONS[name](make_config())
        assert_close(positions(3, torch.tensor(5), CPU), positions(8, 0, CPU)[5:], rtol=0, atol=0)


def test_learned_positions_end_where_they_were_trained_to(make_config):
    positions = POSITIONS["learned"](make_config(max_position_embeddings=10))
    assert positions(10, 0, CPU).shape == (10, 16)
    with pytest.raises(ValueError, match=r"sequence of 11 tokens.*10 learned positions.*max_position_embeddings"):
        positions(3, 8, CPU)
