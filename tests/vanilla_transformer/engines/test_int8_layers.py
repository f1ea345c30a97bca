"""Linear layers in 8 bits: close to what they stand for, by a bound that rounding itself gives, and no more changed
than asked."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import T5Config, T5ForConditionalGeneration

from tests.small_models import small_marian
from vanilla_transformer import (
    RnnSearchConfig,
    RnnSearchForConditionalGeneration,
    Translator,
    VanillaTransformerConfig,
    VanillaTransformerForConditionalGeneration,
)
from vanilla_transformer.engines.int8_layers import EXACT_INPUTS, Int8Linear, _product_of_whole_numbers, quantized
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer


SIZES = {"vocab_size": 300, "d_model": 32, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}


def vanilla():
    torch.manual_seed(1)
    return VanillaTransformerForConditionalGeneration(VanillaTransformerConfig.from_preset("tiny", **SIZES)).eval()


def marian():
    torch.manual_seed(1)
    return small_marian(**SIZES)


def t5():
    torch.manual_seed(1)
    return T5ForConditionalGeneration(T5Config(**SIZES, d_kv=8, d_ff=32, num_layers=2, num_heads=4)).eval()


def rnn_search():
    torch.manual_seed(1)
    sizes = {"embedding_size": 32, "hidden_size": 32, "attention_size": 32, "readout_size": 32}
    return RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=300, **sizes)).eval()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (2, 3, 5, 24)])
def test_a_layer_differs_by_rounding_only(shape, bias):
    torch.manual_seed(0)
    linear = nn.Linear(24, 40, bias=bias)
    states = torch.randn(shape) * torch.logspace(-3, 3, shape[-2])[:, None]  # each token on a scale of its own
    # Half a step for each factor of each product: |x| |dw| + |w| |dx| + |dw| |dx|, summed over the inputs.
    half_x = states.abs().amax(-1, keepdim=True) / 127 / 2
    half_w = linear.weight.abs().amax(1) / 127 / 2
    most = states.abs().sum(-1, keepdim=True) * half_w + half_x * linear.weight.abs().sum(1) + 24 * half_x * half_w
    with torch.no_grad():
        expected, found = linear(states), Int8Linear(linear)(states)
    assert found.shape == expected.shape
    assert ((found - expected).abs() <= most * 1.01 + 1e-6).all()


def test_whole_numbers_of_eight_bits_are_exact():
    linear = nn.Linear(3, 2)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[127.0, -3.0, 0.0], [1.0, 127.0, -127.0]]))
        states = torch.tensor([[127.0, 5.0, -64.0], [0.0, 0.0, 0.0]])
        assert_close(Int8Linear(linear)(states), linear(states))


@pytest.mark.parametrize("inputs", [24, EXACT_INPUTS, EXACT_INPUTS + 1, 4096])
def test_products_are_the_same_with_and_without_instructions_for_integers(inputs):
    torch.manual_seed(0)
    states, weight = (torch.randint(-127, 128, shape, dtype=torch.int8) for shape in [(17, inputs), (inputs, 8)])
    states[0], weight[:, 0] = 127, 127  # the largest sum
    expected = torch._int_mm(states, weight)
    assert torch.equal(_product_of_whole_numbers(states, weight.float()).int(), expected)


@pytest.mark.parametrize("make", [vanilla, marian, t5, rnn_search])
def test_a_model_keeps_its_shape_and_nearly_its_logits(make):
    model = make()
    found = quantized(model, "int8")
    ids = torch.randint(4, 300, (3, 7))
    with torch.no_grad():
        expected, logits = (each(input_ids=ids, decoder_input_ids=ids).logits for each in (model, found))
    difference = (logits - expected).norm() / expected.norm()
    assert 0 < difference < 0.05
    assert not any(isinstance(module, nn.Linear) for module in found.modules())


def test_the_model_itself_is_left_as_it_was():
    model = vanilla()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = quantized(model, "int8")
    assert isinstance(model.lm_head, nn.Linear)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    # What is not a linear layer is there once, for both.
    assert found.model.encoder.embed_tokens.weight is model.model.encoder.embed_tokens.weight


def test_no_token_depends_on_its_neighbours():
    layer = Int8Linear(nn.Linear(24, 40))
    states = torch.randn(6, 24)
    alone = torch.cat([layer(row[None]) for row in states])
    assert_close(layer(states), alone, rtol=0, atol=0)


@pytest.mark.parametrize("make", [vanilla, marian])
@torch.no_grad()
def test_no_sentence_depends_on_its_batch(make):
    """Bit for bit: rounding would turn the last bit of a sum into a step of 1/127."""
    encoder = quantized(make(), "int8").get_encoder()
    rows = [torch.randint(4, 300, (length,)) for length in range(2, 34)]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    batch = encoder(input_ids=ids, attention_mask=(ids != 0).long()).last_hidden_state
    for row, states in zip(rows, batch, strict=True):
        alone = encoder(input_ids=row[None], attention_mask=torch.ones(1, len(row), dtype=torch.long))
        assert torch.equal(alone.last_hidden_state[0], states[: len(row)])


def test_positions_that_need_another_attention_are_quantized_too():
    config = VanillaTransformerConfig.from_preset("tiny", **SIZES, position_encoding="relative")
    found = quantized(VanillaTransformerForConditionalGeneration(config), "int8")
    ids = torch.randint(4, 300, (3, 7))
    assert found(input_ids=ids, decoder_input_ids=ids).logits.isfinite().all()


def test_a_translator_decodes_with_it():
    tokenizer = train_tokenizer(["a dog runs", "two cats sleep"], vocab_size=300, min_frequency=1, show_progress=False)
    model = vanilla()
    translator = Translator(model, tokenizer, quantization="int8")
    expected = Translator(quantized(model, "int8"), tokenizer)(["a dog", "two cats"], max_extra_tokens=4)
    assert translator(["a dog", "two cats"], max_extra_tokens=4) == expected
    assert isinstance(translator.model.lm_head, Int8Linear)


def test_what_it_can_not_do_is_said():
    with pytest.raises(ValueError, match=r"quantization='int4' is unknown: choose one of float32, int8"):
        quantized(vanilla(), "int4")
    with pytest.raises(ValueError, match=r"this model is on cpu in bfloat16"):
        quantized(vanilla().bfloat16(), "int8")
    model = vanilla()
    assert quantized(model, "float32") is model
    with pytest.raises(ValueError, match=r"not saved: save the model that it was made of"):
        quantized(model, "int8").save_pretrained("anywhere")


def test_a_file_in_half_precision_is_rounded_from_there(tmp_path):
    vanilla().half().save_pretrained(tmp_path)
    train_tokenizer(["a dog"], vocab_size=280, min_frequency=1, show_progress=False).save_pretrained(tmp_path)
    translator = Translator.from_pretrained(tmp_path, backend="torch", device="cpu", quantization="int8")
    assert translator.model.dtype == torch.float32
    with pytest.raises(ValueError, match=r"quantization='int4' is unknown"):
        Translator.from_pretrained(tmp_path, quantization="int4")
