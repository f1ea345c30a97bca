"""The same numbers however the model is run: attention kernels, compilation, checkpointing, tensor parallelism."""

import os
import socket

import pytest
import torch
import torch.multiprocessing as mp
from torch.testing import assert_close

from vanilla_transformer import VanillaTransformerForConditionalGeneration


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("attention", ["sdpa", "flex_attention"])
@torch.no_grad()
def test_every_attention_kernel_gives_the_same(make_model, batch, attention, masked):
    # Flex attention wants heads at least 16 wide, and compiles itself for each layer: one will do.
    model = make_model(d_model=64, encoder_layers=1, decoder_layers=1, attn_implementation="eager")
    if not masked:
        batch = {"input_ids": batch["input_ids"], "labels": batch["labels"].clamp(min=3)}
    expected = model(**batch)
    model.set_attn_implementation(attention)
    actual = model(**batch)
    assert_close(actual.logits, expected.logits, rtol=1e-4, atol=1e-5)
    assert_close(actual.loss, expected.loss)


@pytest.mark.parametrize("fields", [{}, {"norm_placement": "pre", "position_encoding": "learned"}])
def test_a_model_compiled_as_one_graph_gives_the_same(make_model, batch, fields):
    model = make_model(**fields, encoder_layers=1, decoder_layers=1)
    expected = model(**batch)
    expected.loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(model, fullgraph=True)
    actual = compiled(**batch)
    assert_close(actual.logits, expected.logits, rtol=1e-4, atol=1e-5)
    actual.loss.backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_gradients_equal_plain_ones(make_config, batch, reentrant):
    model = VanillaTransformerForConditionalGeneration(make_config(dropout=0.2)).train()

    def gradients():
        torch.manual_seed(7)  # dropout must fall alike in both runs, and alike again where a layer is run twice
        model.zero_grad()
        model(**batch).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = gradients()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    assert model.is_gradient_checkpointing
    for actual, gradient in zip(gradients(), expected, strict=True):
        assert_close(actual, gradient)


def _compare_in_rank(rank: int, folder, batch, port: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo")
    whole = VanillaTransformerForConditionalGeneration.from_pretrained(folder)
    sharded = VanillaTransformerForConditionalGeneration.from_pretrained(folder, tp_plan="auto")
    name = "model.encoder.layers.0.feed_forward.fc2.weight"
    part, full = sharded.get_parameter(name), whole.get_parameter(name)
    assert part.to_local().shape == (16, 16)
    assert full.shape == (16, 32)

    actual, expected = sharded(**batch), whole(**batch)
    assert_close(actual.logits, expected.logits, rtol=1e-4, atol=1e-5)
    actual.loss.backward()
    expected.loss.backward()
    assert_close(part.grad.full_tensor(), full.grad, rtol=1e-3, atol=1e-5)
    torch.distributed.destroy_process_group()


def test_two_tensor_parallel_ranks_equal_one_process(make_model, batch, tmp_path):
    make_model(d_k=8, d_v=4).save_pretrained(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_compare_in_rank, args=(tmp_path, batch, port), nprocs=2)
