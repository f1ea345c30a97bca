"""Longformer against LED of transformers with the same weights, and its global tokens."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from torch.testing import assert_close
from transformers import LEDConfig
from transformers.models.led.modeling_led import LEDEncoderSelfAttention

from tests.vanilla_transformer.attention import gradients_of
from vanilla_transformer.models.longformer_attention import LongformerAttention
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerAttention


HEADS, WINDOW = 4, 4


def make_pair(make_config, **fields) -> tuple[VanillaTransformerAttention, LEDEncoderSelfAttention]:
    """Our attention without its output projection, which LED has elsewhere, and LED's with the same weights."""
    config = make_config(attention_pattern="longformer", attention_window=WINDOW, **fields)
    ours = LongformerAttention(config, HEADS, 0).eval()
    ours.out_proj = nn.Identity()
    settings = {"d_model": config.d_model, "encoder_attention_heads": HEADS, "attention_window": [WINDOW]}
    led = LEDEncoderSelfAttention(LEDConfig(**settings, attention_probs_dropout_prob=0.0), 0).eval()
    for name in ("q", "k", "v"):
        long_name = {"q": "query", "k": "key", "v": "value"}[name]
        getattr(led, long_name).load_state_dict(getattr(ours, f"{name}_proj").state_dict())
        getattr(led, f"{long_name}_global").load_state_dict(getattr(ours, f"global_{name}_proj").state_dict())
    return ours, led


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("places", [[[0, 7], [3], [1, 2, 16]], [[], [5], []], [[], [], []]])
def test_it_computes_what_led_computes(make_config, implementation, places):
    """With padding, and with different numbers of global tokens in the rows."""
    ours, led = make_pair(make_config, attn_implementation=implementation)
    states = torch.randn(3, 20, ours.config.d_model, requires_grad=True)
    is_token = torch.arange(20) < torch.tensor([[20], [13], [17]])
    is_global = torch.zeros(3, 20)
    for row, columns in enumerate(places):
        is_global[row, columns] = 1

    mask = LongformerAttention.make_mask(
        ours.config, states, is_token.long(), is_causal=False, global_attention_mask=is_global
    )
    output, _ = ours(states, attention_mask=mask)
    led_mask = torch.where(is_token, 1e4 * is_global, -1e4)
    expected, *_ = led(
        states.clone(),
        attention_mask=led_mask,
        is_index_masked=led_mask < 0,
        is_index_global_attn=led_mask > 0,
        is_global_attn=bool((led_mask > 0).any()),
    )
    assert_close(output[is_token], expected[is_token], rtol=0, atol=1e-5)

    projections = [getattr(ours, f"{side}{name}_proj").weight for side in ("", "global_") for name in ("q", "k", "v")]
    names = ("query", "key", "value", "query_global", "key_global", "value_global")
    led_projections = [getattr(led, name).weight for name in names]
    found = gradients_of(output[is_token], [states, *projections])
    wanted = gradients_of(expected[is_token], [states, *led_projections])
    for gradient, expected_gradient in zip(found, wanted, strict=True):
        assert_close(gradient, expected_gradient, rtol=0, atol=1e-4)


@pytest.mark.parametrize("position_encoding", ["sinusoidal", "rotary"])
def test_with_equal_projections_and_a_wide_window_it_is_full_attention(make_model, batch, position_encoding):
    model = make_model(attention_pattern="longformer", attention_window=16, position_encoding=position_encoding)
    full = make_model(position_encoding=position_encoding)
    full.load_state_dict({name: tensor for name, tensor in model.state_dict().items() if ".global_" not in name})
    for layer in model.model.encoder.layers:
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(layer.self_attn, f"global_{name}").load_state_dict(getattr(layer.self_attn, name).state_dict())
    assert_close(model(**batch).logits, full(**batch).logits, rtol=0, atol=1e-5)


def test_the_first_token_is_global_by_default(make_model, batch):
    model = make_model(attention_pattern="longformer", attention_window=2)
    first = torch.zeros(3, 7)
    first[:, 0] = 1
    assert_close(model(**batch).logits, model(**batch, global_attention_mask=first).logits)
    others = model(**batch, global_attention_mask=first.roll(1, 1)).logits
    assert (model(**batch).logits - others).abs().max() > 1e-3


def test_padding_on_the_left_leaves_the_first_token_global(make_model):
    """Without position encodings, a shift of all tokens changes nothing."""
    encoder = make_model(attention_pattern="longformer", attention_window=2, position_encoding="none").model.encoder
    ids = torch.randint(3, 23, (1, 6))
    padded = nn.functional.pad(ids, (3, 0))
    shifted = encoder(padded, attention_mask=padded.ne(0).long()).last_hidden_state[:, 3:]
    assert_close(shifted, encoder(ids).last_hidden_state, rtol=0, atol=1e-5)


def test_generate_passes_the_global_tokens_to_the_encoder(make_model, batch, monkeypatch):
    model = make_model(attention_pattern="longformer", attention_window=2)
    seen = []
    forward = type(model.model.encoder).forward

    def spy(self, *args, **kwargs):
        seen.append(kwargs.get("global_attention_mask"))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(type(model.model.encoder), "forward", spy)
    mask = torch.zeros(3, 7)
    mask[:, 1] = 1
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    model.generate(**source, global_attention_mask=mask, max_new_tokens=3, num_beams=2)
    assert len(seen) == 1
    assert seen[0] is mask


def test_maps_have_a_band_and_the_lines_of_the_global_tokens(make_model, batch):
    model = make_model(attention_pattern="longformer", attention_window=2, attn_implementation="eager")
    mask = torch.zeros(3, 7)
    mask[0, 4] = 1
    attention = model(**batch, global_attention_mask=mask, output_attentions=True).encoder_attentions[0][0]
    distances = (torch.arange(7) - torch.arange(7)[:, None]).abs()
    is_line = torch.zeros(7, 7, dtype=torch.bool)
    is_line[4] = is_line[:, 4] = True
    assert attention[:, (distances > 1) & ~is_line].abs().max() == 0
    assert attention[:, is_line].min() > 0
    assert_close(attention.sum(-1), torch.ones(HEADS, 7))


def test_mistakes_get_a_sentence(make_config, make_model, batch):
    model = make_model(attention_pattern="longformer", attention_window=2)
    with pytest.raises(ValueError, match=r"global_attention_mask has the shape \[3, 5\], but the source has \[3, 7\]"):
        model(**batch, global_attention_mask=torch.ones(3, 5))
    with pytest.raises(ValueError, match="'full' has no global tokens"):
        make_model()(**batch, global_attention_mask=torch.ones(3, 7))
    with pytest.raises(StrictDataclassError, match="position_encoding='relative' weighs keys by their distance"):
        make_config(attention_pattern="longformer", position_encoding="relative")
