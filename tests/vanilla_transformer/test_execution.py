"""The same numbers however the model is run: attention kernels, compilation, checkpointing, sharding."""

import os
import socket

import pytest
import torch
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard
from torch.testing import assert_close

from vanilla_transformer import VanillaTransformerForConditionalGeneration


@pytest.mark.parametrize(
    ("attention", "masked"),
    [
        *(("sdpa", True), ("sdpa", False)),
        *(pytest.param("flex_attention", masked, marks=pytest.mark.slow) for masked in (True, False)),
    ],
)
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


@pytest.mark.parametrize(
    "fields", [{}, pytest.param({"norm_placement": "pre", "position_encoding": "learned"}, marks=pytest.mark.slow)]
)
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


def _in_rank(rank: int, function, folder, batch, port: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("gloo")
    function(folder, batch)
    torch.distributed.destroy_process_group()


def in_two_processes(function, folder, batch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_in_rank, args=(function, folder, batch, port), nprocs=2)


def compare_tensor_parallel(folder, batch) -> None:
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


def compare_fully_sharded(folder, batch) -> None:
    """One step of gradient descent with the weights spread over both processes, the layers being the units."""
    whole = VanillaTransformerForConditionalGeneration.from_pretrained(folder)
    sharded = VanillaTransformerForConditionalGeneration.from_pretrained(folder)
    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    for layer in (*sharded.model.encoder.layers, *sharded.model.decoder.layers):
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for model in (whole, sharded):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.train()(**batch).loss.backward()
        optimizer.step()
    parts = dict(sharded.named_parameters())
    assert parts["model.encoder.embed_tokens.weight"].to_local().shape[0] < 23
    for name, parameter in whole.named_parameters():
        assert_close(parts[name].full_tensor(), parameter, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "compare", [pytest.param(compare_tensor_parallel, marks=pytest.mark.slow), compare_fully_sharded]
)
def test_two_sharded_processes_equal_one_whole(make_model, batch, tmp_path, compare):
    make_model(d_k=8, d_v=4, dropout=0.0).save_pretrained(tmp_path)
    in_two_processes(compare, tmp_path, batch)
