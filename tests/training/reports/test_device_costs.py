"""Counted costs against costs that are known."""

import pytest
import torch
from torch import nn

from tests.conftest import SMALL
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.scripts.benchmarks.peers import update_flops
from vanilla_transformer.training.reports.device_costs import (
    Accelerated,
    Count,
    costs_of_update,
    shape_of_batch,
    shape_of_model,
)


BASE = VanillaTransformerConfig.from_preset("base", vocab_size=37_000)


def test_kernels_traffic_and_memory_of_known_operations():
    first, second = torch.empty(10, 20, device="meta"), torch.empty(20, 30, device="meta")
    with Count("meta", [first, second]) as count:
        product = first @ second
        view = product.view(300)[:5]  # no kernel, no memory
        del product, view
        (first + 1).exp_()
    assert count.kernels == 3
    assert count.traffic == 4 * (200 + 600 + 300) + 4 * (200 + 200) + 4 * (200 + 200)
    assert count.peak_memory == 4 * (200 + 600 + 300)
    assert count.memory == 4 * (200 + 600)


def test_waits_are_reads_masks_as_indices_and_blocking_copies():
    values = torch.arange(6)
    with Count("cpu") as count:
        values.sum().item()
        values[values > 2]
        torch.tensor([3])
        values[torch.arange(6)] + values.to(torch.float32)
    assert {name: number for name, number in count.waits.items() if number} == {
        "_local_scalar_dense": 1,
        "index": 1,
        "lift_fresh": 1,
    }
    with Count("meta") as count:
        values.to("meta", non_blocking=True), values.to("meta")
    assert count.waits["_to_copy"] == 1
    with pytest.raises(RuntimeError, match="meta tensors"), Count("meta"):
        torch.empty((), device="meta").item()


def test_products_under_autocast_are_in_its_type_and_norms_in_float32():
    layer, norm = nn.Linear(4, 4, device="meta"), nn.LayerNorm(4, device="meta")
    with Accelerated(torch.bfloat16):
        product = layer(torch.empty(2, 4, device="meta"))
        assert product.dtype == torch.bfloat16
        assert norm(product).dtype == torch.float32


def test_flops_are_those_of_the_formula():
    batch = shape_of_batch(8, 31, 29)
    real = {"attention_mask": torch.ones(8, 31), "labels": torch.ones(8, 29)}
    assert costs_of_update(shape_of_model(BASE), batch).flops == pytest.approx(update_flops(BASE, real), rel=0.02)
    assert batch["labels"].shape == (8, 29)


def test_bounds_of_the_base_models_update():
    """24,800 target tokens. With a CPU's pieces, the loss alone took 2,140 kernels; with all logits, evaluation took
    more memory than training."""
    costs = costs_of_update(shape_of_model(BASE), shape_of_batch(800, 31, 31))
    assert costs.waits == {}
    assert costs.kernels < 1_700
    assert costs.traffic < 125e9
    assert costs.peak_memory < 9.1e9
    evaluation = costs_of_update(shape_of_model(BASE), shape_of_batch(800, 31, 31), training=False)
    assert evaluation.peak_memory < costs.peak_memory / 4


def test_a_padded_batch_and_a_cpu_are_counted_too():
    config = VanillaTransformerConfig(**SMALL)
    padded = costs_of_update(shape_of_model(config), shape_of_batch(2, 5, 5, padding=True))
    assert padded.waits == {}
    batch = shape_of_batch(2, 5, 5)
    assert costs_of_update(shape_of_model(config), batch, device="cpu", dtype=torch.float32).peak_memory > 0
