"""Reversible layers against the same layers without recomputation, and what they keep for the backward pass."""

import subprocess
import sys

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.models import reversible_layers as reversible


REVERSIBLE = {"norm_placement": "reversible"}
VARIANTS = [
    {},
    {"position_encoding": "relative"},
    {"position_encoding": "relative", "attention_pattern": "window", "attention_window": 4},
    {"attention_pattern": "longformer", "attention_window": 4},
    {"attention_pattern": "lsh", "lsh_bucket_length": 2},
]


def run(model, batch, monkeypatch, *, recompute: bool):
    """Loss and gradients of a training step with dropout."""
    with monkeypatch.context() as patch:
        if not recompute:  # autograd keeps everything, as for any other layers
            patch.setattr(reversible._Reversible, "apply", apply_units)
        torch.manual_seed(7)
        model.zero_grad()
        loss = model(**batch).loss
        loss.backward()
    return loss, {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def apply_units(streams, units, shared, *inputs):
    for (residual, sublayer, _), seed in zip(units, reversible.draw_seeds(units), strict=True):
        with reversible.seeded(seed, streams.device):
            streams = residual(streams, sublayer)
    return streams


@pytest.mark.parametrize("fields", VARIANTS, ids=lambda fields: "-".join(map(str, fields.values())) or "full")
def test_gradients_are_those_of_the_kept_activations(make_model, batch, monkeypatch, fields):
    model = make_model(**REVERSIBLE, **fields, dropout=0.2, attention_dropout=0.1).train()
    loss, gradients = run(model, batch, monkeypatch, recompute=True)
    expected_loss, expected = run(model, batch, monkeypatch, recompute=False)
    assert_close(loss, expected_loss)
    for name, gradient in gradients.items():
        assert_close(gradient, expected[name], rtol=0, atol=1e-5)


def test_random_numbers_after_the_backward_pass_are_those_without_it(make_model, batch):
    model = make_model(**REVERSIBLE, dropout=0.2).train()
    torch.manual_seed(3)
    loss = model(**batch).loss
    state = torch.get_rng_state()
    loss.backward()
    assert torch.equal(torch.get_rng_state(), state)


def test_two_streams_follow_the_equations(make_model):
    """y1 = x1 + F(x2), y2 = x2 + G(y1); the output is the norm of their mean."""
    encoder = make_model(**REVERSIBLE).model.encoder
    ids = torch.randint(3, 23, (2, 5))
    x1 = x2 = encoder.enter(encoder.embed_tokens(ids), torch.arange(5))
    for layer in encoder.layers:
        x1 = x1 + layer.self_attn(layer.self_attn_residual.norm(x2))[0]
        x2 = x2 + layer.feed_forward(layer.feed_forward_residual.norm(x1))
    assert_close(encoder(ids).last_hidden_state, encoder.norm((x1 + x2) / 2), rtol=0, atol=1e-5)


def saved_numbers(model, batch) -> int:
    """Numbers that autograd keeps of the encoder between forward and backward pass, without parameters."""
    parameters = {parameter.data_ptr() for parameter in model.parameters()}
    sizes = {}

    def pack(tensor):
        if tensor.data_ptr() not in parameters:
            sizes[tensor.data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model.model.encoder(batch["input_ids"], batch["attention_mask"]).last_hidden_state
    assert output.requires_grad
    return sum(sizes.values())


def test_what_is_kept_does_not_grow_with_the_layers(make_model, batch):
    kept = {layers: saved_numbers(make_model(**REVERSIBLE, encoder_layers=layers), batch) for layers in (1, 6)}
    assert kept[1] == kept[6]
    plain = {layers: saved_numbers(make_model(encoder_layers=layers), batch) for layers in (1, 6)}
    assert plain[6] > 4 * plain[1]


PEAK_OF_TRAINING = """
import sys, torch
from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerEncoder
from vanilla_transformer.scripts.benchmarks.measuring import peak_memory
sizes = {"vocab_size": 100, "d_model": 64, "encoder_ffn_dim": 256, "encoder_attention_heads": 4}
fields = {"norm_placement": "reversible" if sys.argv[2] == "reversible" else "pre"}
encoder = VanillaTransformerEncoder(VanillaTransformerConfig(**sizes, **fields, encoder_layers=int(sys.argv[1])))
ids = torch.randint(3, 100, (64, 256))
before = peak_memory()
encoder.train()(ids).last_hidden_state.sum().backward()
print(peak_memory() - before)
"""


@pytest.mark.slow
def test_twelve_layers_need_hardly_more_memory_than_two():
    def peak(layers: int, kind: str) -> int:
        program = [sys.executable, "-c", PEAK_OF_TRAINING, str(layers), kind]
        return int(subprocess.run(program, capture_output=True, text=True, check=True).stdout)

    peaks = {(kind, layers): peak(layers, kind) for kind in ("reversible", "plain") for layers in (2, 12)}
    print({name: f"{peak / 2**20:.0f} MiB" for name, peak in peaks.items()})
    assert peaks["reversible", 12] <= 1.3 * peaks["reversible", 2]
    assert peaks["plain", 12] > 3 * peaks["plain", 2]


def test_hidden_states_of_all_layers_can_be_had(make_model, batch):
    model = make_model(**REVERSIBLE)
    expected = model(**batch)
    output = model(**batch, output_hidden_states=True)
    assert_close(output.logits, expected.logits)
    states = output.encoder_hidden_states
    assert [tensor.shape[-1] for tensor in states] == [32, 32, 16]  # both streams, and at last the output
    assert_close(states[-1], output.encoder_last_hidden_state)


def test_autocast_is_the_same_when_activations_are_computed_again(make_model, batch):
    model = make_model(**REVERSIBLE, dropout=0.0).train()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(**batch).loss
    loss.backward()  # outside of autocast, as trainers do
    gradient = model.model.encoder.layers[0].feed_forward.fc1.weight.grad
    with torch.autocast("cpu", torch.bfloat16):
        kept = model(**batch, output_hidden_states=True).loss
    model.zero_grad()
    kept.backward()
    assert_close(gradient, model.model.encoder.layers[0].feed_forward.fc1.weight.grad, rtol=0.1, atol=1e-3)


def test_the_boolean_of_earlier_configs_names_the_choice(make_config):
    with pytest.raises(ValueError, match="reversible=True is a choice of another field: write norm_placement='rev"):
        make_config(reversible=True)
    assert make_config(reversible=False).norm_placement == "post"
