"""Dropout with cheap random numbers is still dropout."""

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.models.cpu_dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_the_asked_share_is_dropped_and_the_rest_scaled(p):
    states = torch.rand(1000, 999) + 1
    output = Dropout(p).train()(states)
    dropped = output == 0
    assert dropped.float().mean().item() == pytest.approx(p, abs=4 * (p * (1 - p) / states.numel()) ** 0.5)
    assert_close(output[~dropped], states[~dropped] / (1 - p), rtol=1e-4, atol=0)


def test_neighbours_are_dropped_independently():
    dropped = Dropout(0.3).train()(torch.ones(2**20)) == 0
    for distance in range(1, 9):  # the four numbers of one draw among them
        both = (dropped[:-distance] & dropped[distance:]).float().mean().item()
        assert both == pytest.approx(0.09, abs=0.0015), distance


def test_the_gradient_is_dropped_where_the_state_was():
    states = torch.randn(7, 5, requires_grad=True)
    output = Dropout(0.4).train()(states)
    output.sum().backward()
    assert_close(states.grad * states.detach(), output.detach())


def test_the_seed_decides_and_evaluation_drops_nothing():
    states, layer = torch.randn(3, 5), Dropout(0.5).train()
    torch.manual_seed(3)
    first = layer(states)
    torch.manual_seed(3)
    assert torch.equal(layer(states), first)
    assert not torch.equal(layer(states), first)
    assert torch.equal(layer.eval()(states), states)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3, 5), (0, 4)])
def test_any_shape_and_type(shape):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        output = Dropout(0.5).train()(torch.ones(shape, dtype=dtype))
        assert output.shape == shape
        assert output.dtype == dtype


def test_all_or_nothing():
    assert torch.equal(Dropout(1.0).train()(torch.ones(9)), torch.zeros(9))
    assert torch.equal(Dropout(0.0).train()(torch.ones(9)), torch.ones(9))
