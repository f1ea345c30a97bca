"""The packed decoder computes what the ordinary one does, follows its weights, and leaves alone what it can't do."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.cpu import packed_decoder_steps
from vanilla_transformer.cpu.packed_decoder_steps import (
    _PACKED,
    PackedDecoder,
    PackedLinear,
    PackedPasses,
    PackedSteps,
    can_be_packed,
)
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.mask_predict_search import make_passes
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerFeedForward


SOURCES = [[5, 6, 7, 8, 9, 10, 2], [11, 12, 2], [13, 2], [14, 15, 16, 17, 2]]


@pytest.fixture(autouse=True, params=["AVX2", "AVX512"])
def order(request, monkeypatch):
    """Weights in the order of either product, on any CPU that oneDNN knows."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: request.param)
    monkeypatch.setattr(packed_decoder_steps, "LEAST_FOR_ONEDNN", 0)
    return request.param


@pytest.fixture
def lively_model(make_model):
    """Larger weights than usual, so that hypotheses differ in words and lengths."""

    def make(**fields):
        model = make_model(**{"vocab_size": 1500, **fields})
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(2.0).add_(0.02 * torch.randn_like(parameter))  # biases are zero at first
        return model

    return make


def search(model, sources=SOURCES, **options):
    longest = max(map(len, sources))
    ids = torch.tensor([source + [0] * (longest - len(source)) for source in sources])
    return model.generate(
        input_ids=ids,
        attention_mask=(ids != 0).long(),
        custom_generate=beam_search.search,
        return_dict_in_generate=True,
        **{"max_extra_tokens": 12, "num_beams": 4, **options},
    )


def search_layer_by_layer(model, *args, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_decoder_steps, "can_be_packed", lambda *_: False)
        return search(model, *args, **options)


def assert_same_search(model, *args, **options):
    found, expected = search(model, *args, **options), search_layer_by_layer(model, *args, **options)
    assert found.sequences.tolist() == expected.sequences.tolist()
    assert_close(found.sequences_scores, expected.sequences_scores, rtol=1e-5, atol=1e-5)
    if options.get("output_logits"):
        for step, (ours, theirs) in enumerate(zip(found.logits, expected.logits, strict=True)):
            tolerance = 1e-5 * (theirs.max() - theirs.min()).item()  # the weights are large, and so are the logits
            assert_close(ours, theirs, rtol=0, atol=tolerance, msg=lambda text, step=step: f"step {step}: {text}")
    return found


PACKABLE_FIELDS = [
    {},
    {"norm_placement": "pre", "activation_function": "gelu"},
    {"position_encoding": "learned", "key_projection": "shared", "output_bias": True, "score_function": "dot"},
    {"position_encoding": "none", "attn_implementation": "eager", "decoder_attention_heads": 2},
]


@pytest.mark.parametrize("fields", PACKABLE_FIELDS)
def test_logits_of_every_step_are_those_of_the_layers(lively_model, fields):
    fields = dict(fields)
    implementation = fields.pop("attn_implementation", "sdpa")
    model = lively_model(**fields)
    model.set_attn_implementation(implementation)
    assert can_be_packed(model)
    for beams in (1, 4):
        assert_same_search(model, num_beams=beams, output_logits=True)  # all sentences stay to the end
        found = assert_same_search(model, num_beams=beams, num_return_sequences=beams)  # finished ones leave the batch
        assert len({row.count(0) for row in found.sequences.tolist()}) > 1  # translations of several lengths


@pytest.mark.parametrize("fields", PACKABLE_FIELDS)
@pytest.mark.parametrize("has_padding", [True, False])
@torch.no_grad()
def test_a_pass_over_all_tokens_has_the_logits_of_the_model(make_mask_model, batch, fields, has_padding):
    """Twice: a pass leaves nothing behind."""
    model = make_mask_model(**fields)
    sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
    is_token = torch.arange(6) < torch.tensor([[6], [4], [2]])
    if not has_padding:
        sources, is_token = {"input_ids": batch["input_ids"][:1]}, is_token[:1]
    chosen = is_token & (torch.arange(6) % 2 == 0)
    decode = make_passes(model, model.get_encoder()(**sources)[0], sources.get("attention_mask"), is_token)
    assert isinstance(decode, PackedPasses)
    for _ in range(2):
        tokens = torch.randint(3, 23, is_token.shape).masked_fill(~is_token, 0)
        expected = model(**sources, decoder_input_ids=tokens).logits[chosen]
        assert_close(decode(tokens, chosen.flatten().nonzero().squeeze(1)), expected, rtol=0, atol=1e-4)


def test_a_pass_runs_layer_by_layer_where_modules_are_not_known(make_mask_model, batch):
    sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
    model = make_mask_model()
    expected = model.generate(**sources)
    calls = []
    model.model.decoder.layers[0].self_attn.register_forward_hook(lambda *_: calls.append(1))
    assert torch.equal(model.generate(**sources), expected)
    assert calls


def test_prefixes_sources_without_padding_and_translations_beyond_the_room(lively_model):
    model = lively_model()
    prefix = torch.tensor([[1, 20, 21]] * len(SOURCES))
    assert_same_search(model, decoder_input_ids=prefix)
    assert_same_search(model, [SOURCES[0]])
    model.generation_config.eos_token_id = None  # nothing ends before the limit: more steps than source + 50
    assert_same_search(model, SOURCES[1:3], max_extra_tokens=58, max_new_tokens=60, num_beams=2)


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(input_ids=torch.tensor([SOURCES[0]]), labels=torch.tensor([SOURCES[1]])).loss.backward()
    optimizer.step()


def load_others(model):
    others = VanillaTransformerForConditionalGeneration(model.config)
    model.load_state_dict(others.state_dict())


def change_data(model):
    """As adapters are merged: the tensors do not notice."""
    model.model.decoder.layers[1].encoder_attn.out_proj.weight.data[3, 5] += 0.5


def replace_norm(model):
    model.model.decoder.layers[1].feed_forward_residual.norm = nn.LayerNorm(16, eps=0.5)


def replace_layer(model):
    model.model.decoder.layers[0].feed_forward.fc1 = nn.Linear(16, 32)


def resize(model):
    model.resize_token_embeddings(1600)


@pytest.mark.parametrize("change", [train, load_others, change_data, replace_norm, replace_layer, resize])
def test_changed_weights_are_packed_again(lively_model, change):
    model = lively_model()
    before = search(model, output_logits=True).logits[1]
    change(model)
    after = assert_same_search(model, output_logits=True).logits[1]
    assert before.shape != after.shape or (before - after).abs().max() > 1e-4


def test_rows_of_a_product_in_the_order_of_onednn_do_not_depend_on_each_other(order):
    linear = nn.Linear(96, 384)
    packed, states = PackedLinear(linear), torch.randn(40, 96)
    assert packed.weight.is_mkldnn == (order == "AVX512")
    assert_close(packed(states), linear(states))
    assert_close(packed.add_to(torch.ones(40, 384), states), linear(states) + 1)
    if order == "AVX512":
        assert all(torch.equal(packed(states[:rows]), packed(states)[:rows]) for rows in (1, 2, 5, 16, 33))


def test_a_model_is_packed_once_and_released_with_it(lively_model):
    model = lively_model()
    search(model)
    packed = PackedDecoder.of(model)
    search(model)
    assert PackedDecoder.of(model) is packed
    number = len(_PACKED)
    del model
    gc.collect()
    assert len(_PACKED) == number - 1


class TwiceTheFeedForward(VanillaTransformerFeedForward):
    def forward(self, hidden_states):
        return 2 * super().forward(hidden_states)


def with_subclass(model):
    feed_forward = TwiceTheFeedForward(model.config, 32).eval()
    model.model.decoder.layers[0].feed_forward = feed_forward
    return model


def with_hook(model):
    model.model.decoder.layers[0].self_attn.q_proj.register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


def with_own_forward(model):
    model.lm_head.forward = lambda states: nn.functional.linear(states, -model.lm_head.weight)
    return model


def with_adapter(model):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    peft.inject_adapter_in_model(config, model)
    return model.eval()


@pytest.mark.parametrize(
    "change",
    [
        with_subclass,
        with_hook,
        with_own_forward,
        with_adapter,
        lambda model: model.double(),
        lambda model: model.to(torch.bfloat16),
    ],
)
def test_decoders_with_something_else_run_layer_by_layer(lively_model, change):
    model = lively_model()
    assert can_be_packed(model)
    changed = change(copy.deepcopy(model))
    assert not can_be_packed(changed)
    if changed.dtype == torch.float32:
        assert_same_search(changed)


@pytest.mark.parametrize(
    "fields",
    [
        {"position_encoding": "rotary"},
        {"position_encoding": "relative"},
        {"score_function": "additive"},
        {"attention_pattern": "window", "attention_window": 4},
        {"d_k": 2},
    ],
)
def test_variants_run_layer_by_layer(lively_model, fields):
    assert not can_be_packed(lively_model(**fields))


def test_models_in_training_under_autocast_or_on_other_devices_run_layer_by_layer(lively_model):
    model = lively_model()
    assert not can_be_packed(copy.deepcopy(model).train())
    assert not can_be_packed(copy.deepcopy(model).to("meta"))
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_be_packed(model)


def test_greedy_search_needs_no_probabilities_but_gives_them_on_request(lively_model):
    model = lively_model()
    with_scores = search(model, num_beams=1)
    ids = {"input_ids": torch.tensor([SOURCES[0]]), "max_extra_tokens": 12, "num_beams": 1}
    alone = model.generate(**ids, custom_generate=beam_search.search)[0].tolist()
    assert with_scores.sequences[0].tolist()[: len(alone)] == alone
    assert (with_scores.sequences_scores < 0).all()


def test_the_model_gives_its_stepper_to_the_search(lively_model, monkeypatch):
    steps = []
    step = PackedSteps.step
    monkeypatch.setattr(PackedSteps, "step", lambda self, hyps: steps.append(hyps.shape) or step(self, hyps))
    search(lively_model())
    assert steps
