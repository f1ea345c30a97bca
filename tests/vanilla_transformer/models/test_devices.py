"""Searches look at the numbers of a device once at each step, and dropout with cheap random numbers is dropout."""

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.small_models import lively, small_marian
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.devices import Dropout, places_of, without_looking
from vanilla_transformer.training.reports.device_costs import Count


def searched(model, batch, **options) -> tuple[torch.Tensor, int]:
    """The translations, and how often the host waited."""
    with Count("cpu") as count:
        output = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            custom_generate=model.search if hasattr(model, "search") else beam_search.search,
            **options,
        )
    return output, sum(count.waits.values())


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize(
    ("positions", "options"), [("sinusoidal", {"forced_eos_token_id": 2}), ("relative", {"suppress_tokens": [2]})]
)
def test_a_step_of_beam_search_waits_once(make_model, batch, beams, positions, options):
    """Also while sentences are finished and leave the batch. Where the end is forced, it is so at three steps, the
    limits of three sentences."""
    model = lively(make_model(position_encoding=positions).bfloat16())  # packed steps are for float32 on a CPU
    options = {"num_beams": beams, **options}
    expected, _ = searched(model, batch, **options)
    with without_looking():
        output, waits = searched(model, batch, **options)
        short, few_waits = searched(model, batch, **options, max_new_tokens=5)
    assert torch.equal(output, expected)
    steps = output.shape[1] - short.shape[1]
    assert steps > 10
    assert waits - few_waits <= steps + 2


def test_a_step_of_another_model_waits_once_too(batch):
    model = lively(small_marian())
    options = {"num_beams": 3, "max_new_tokens": 30}
    expected, _ = searched(model, batch, **options)
    with without_looking():
        output, waits = searched(model, batch, **options)
        short, few_waits = searched(model, batch, **{**options, "max_new_tokens": 5})
    assert torch.equal(output, expected)
    # The model's own forward waits too: the library looks at the source's mask.
    assert waits - few_waits <= 3 * (output.shape[1] - short.shape[1])


def test_iterations_of_mask_predict_wait_for_nothing(make_mask_model, batch):
    model = make_mask_model()
    options = {"iterations": 2, "length_candidates": 3}
    expected, _ = searched(model, batch, **{**options, "iterations": 6})
    with without_looking():
        _, few_waits = searched(model, batch, **options)
        output, waits = searched(model, batch, **{**options, "iterations": 6})
    assert torch.equal(output, expected)
    assert waits == few_waits


def test_places_of_marks():
    marks = torch.rand(50) < 0.3
    (expected,) = torch.nonzero(marks, as_tuple=True)
    assert torch.equal(places_of(marks, len(expected)), expected)
    assert places_of(marks.to("meta"), 7).shape == (7,)


class NoFloat64(TorchDispatchMode):
    """Refuses float64 on any device but the CPU: Apple's has none."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        output = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(output):
            is_double = torch.is_tensor(leaf) and leaf.dtype == torch.float64
            assert not is_double or leaf.device.type == "cpu", f"{func} makes float64"
        return output


def test_no_float64_off_the_cpu(make_model, make_mask_model):
    with NoFloat64():
        for model in (make_model(), make_mask_model()):
            ids = torch.ones(2, 7, dtype=torch.long, device="meta")
            model.to("meta").train()(input_ids=ids, attention_mask=ids, labels=ids).loss.backward()


# --- dropout ---


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
