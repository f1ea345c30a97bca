"""MarianMT, converted, is the same network: weights bit by bit, logits, tokens and the files of its tokenizer."""

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    AutoModelForSeq2SeqLM,
    MarianConfig,
    MarianMTModel,
)

from tests.small_models import OPUS, assert_same_weights, draw_weights, opus_marian, write_opus_folder
from vanilla_transformer.converters.from_and_to_marian import (
    config_from_marian,
    from_marian,
    largest_difference,
    load,
    to_marian,
)
from vanilla_transformer.models import beam_search
from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy


SEPARATE = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31}
MARIANS = {
    "opus": {},
    "uneven": {"encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_ffn_dim": 20},
    "relu, unscaled": {"activation_function": "relu", "scale_embedding": False},
    "two vocabularies": SEPARATE,
    "two embeddings": {"share_encoder_decoder_embeddings": False},
    "untied": {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": False},
    "two vocabularies, untied": {"tie_word_embeddings": False, **SEPARATE},
}
OURS = {
    "paper": {},
    "uneven": {"encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_ffn_dim": 20},
    "gelu, unscaled": {"activation_function": "gelu", "scale_embedding": False},
    "two vocabularies": {"target_vocab_size": 31},
    "two embeddings": {"share_encoder_decoder_embeddings": False},
    "untied": {"tie_word_embeddings": False},
    "bias": {"output_bias": True},
    "two vocabularies, untied, bias": {"tie_word_embeddings": False, "target_vocab_size": 31, "output_bias": True},
}


@pytest.fixture
def inputs(batch):
    """Padding as OPUS-MT has it."""
    batch["input_ids"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, OPUS["pad_token_id"])
    return batch


# --- the functions ---


@pytest.mark.parametrize("fields", MARIANS.values(), ids=MARIANS.keys())
@pytest.mark.parametrize("bias", [True, False])
def test_marian_converted_gives_the_same_logits_and_loss(inputs, fields, bias):
    theirs = opus_marian(bias, **fields)
    ours = from_marian(theirs)
    assert ours.config.output_bias == bias
    actual, expected = ours(**inputs), theirs(**inputs)
    assert_close(actual.logits, expected.logits, rtol=1e-5, atol=1e-5)
    assert_close(actual.loss, expected.loss, rtol=1e-6, atol=1e-6)
    assert largest_difference(theirs, ours) < 1e-5


@pytest.mark.parametrize("fields", MARIANS.values(), ids=MARIANS.keys())
@pytest.mark.parametrize("bias", [True, False])
def test_marian_to_ours_and_back_is_bit_equal(fields, bias):
    theirs = opus_marian(bias, **fields)
    back = to_marian(from_marian(theirs))
    assert back.config.to_dict() == theirs.config.to_dict()
    assert back.generation_config.to_dict() == theirs.generation_config.to_dict()
    assert_same_weights(back, theirs)


@pytest.mark.parametrize("fields", OURS.values(), ids=OURS.keys())
def test_ours_to_marian_and_back_is_bit_equal_and_gives_the_same_logits(make_model, inputs, fields):
    ours = draw_weights(make_model(position_encoding="sinusoidal_halves", **fields))
    theirs = to_marian(ours)
    assert_close(theirs(**inputs).logits, ours(**inputs).logits, rtol=1e-5, atol=1e-5)
    back = from_marian(theirs)
    assert_same_weights(back, ours)
    assert back.config.output_vocab_size == ours.config.output_vocab_size


@pytest.mark.parametrize("fields", OURS.values(), ids=OURS.keys())
def test_the_papers_interleaved_sinusoids_become_marians_halves(make_model, inputs, fields):
    ours = draw_weights(make_model(position_encoding="sinusoidal", **fields))
    assert_close(to_marian(ours)(**inputs).logits, ours(**inputs).logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fields", [{}, SEPARATE], ids=["one vocabulary", "two vocabularies"])
@pytest.mark.parametrize("beams", [1, 4])
def test_generate_gives_the_same_tokens(inputs, fields, beams):
    theirs = opus_marian(**fields)
    ours = from_marian(theirs)
    options = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    options |= {"num_beams": beams, "no_repeat_ngram_size": 1}  # random weights love repetition
    expected = theirs.generate(**options)
    assert expected[0, 0] == OPUS["pad_token_id"]
    assert not torch.equal(expected[0], expected[1])
    assert torch.equal(ours.generate(**options), expected)
    assert torch.equal(*(model.generate(**options, custom_generate=beam_search.search) for model in (ours, theirs)))


def test_generation_settings_are_carried_over_and_not_shared():
    theirs = opus_marian()
    ours = from_marian(theirs)
    kept = ours.generation_config
    assert (kept.num_beams, kept.max_length, kept.bad_words_ids, kept.forced_eos_token_id) == (3, 20, [[22]], 0)
    ours.generation_config.num_beams = 7
    assert theirs.generation_config.num_beams == 3


def test_no_end_is_forced_where_none_was(make_model):
    assert to_marian(make_model(position_encoding="sinusoidal_halves")).config.forced_eos_token_id is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_keep_their_type(dtype):
    theirs = opus_marian().to(dtype)
    ours = from_marian(theirs)
    assert {parameter.dtype for parameter in ours.parameters()} == {dtype}
    assert_same_weights(to_marian(ours), theirs)
    assert_close(ours(**ours.dummy_inputs).logits, theirs(**ours.dummy_inputs).logits, rtol=0.05, atol=0.05)


def test_a_longer_source_than_marians_table_is_no_error():
    ids = torch.randint(22, (1, OPUS["max_position_embeddings"] + 5))
    assert from_marian(opus_marian())(input_ids=ids, decoder_input_ids=ids).logits.isfinite().all()


def test_positions_other_than_sinusoids_are_refused():
    theirs = opus_marian()
    theirs.model.decoder.embed_positions.weight.data[3, 5] += 1e-4
    with pytest.raises(ValueError, match=r"model\.decoder\.embed_positions\.weight holds other positions"):
        from_marian(theirs)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("norm_placement", "pre"),
        ("position_encoding", "sinusoidal_tensor2tensor"),
        ("position_encoding", "learned"),
        ("layer_norm_eps", 1e-6),
        ("d_k", 8),
        ("d_v", 2),
        ("decoder_start_token_id", None),
    ],
)
def test_what_marian_can_not_express_is_refused_by_name(make_model, field, value):
    model = make_model(**{"position_encoding": "sinusoidal_halves", field: value})
    with pytest.raises(ValueError, match=f"^{field}={value!r} can't become MarianMT"):
        to_marian(model)


def test_heads_of_the_usual_width_may_be_spelt_out(make_model):
    ours = draw_weights(make_model(position_encoding="sinusoidal_halves", d_k=4, d_v=4))
    assert largest_difference(ours, to_marian(ours)) < 1e-5


# --- the bias of the output projection, which only models from Marian have ---


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_the_loss_without_logits_has_the_bias_in_it(inputs, epsilon):
    ours, criterion = from_marian(opus_marian()), LabelSmoothedCrossEntropy(epsilon)
    found = []
    for skip_logits in (True, False):
        ours.zero_grad()
        loss = ours(**inputs, criterion=criterion, skip_logits=skip_logits).loss
        loss.backward()
        found.append({"loss": loss} | {name: weight.grad.clone() for name, weight in ours.named_parameters()})
    assert "lm_head.bias" in found[0]
    assert_close(*found, rtol=1e-5, atol=1e-6)


def test_a_new_bias_is_zero_and_survives_saving_and_resizing(make_model, tmp_path):
    model = make_model(output_bias=True)
    assert not model.lm_head.bias.any()
    draw_weights(model).save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert torch.equal(loaded.lm_head.bias, model.lm_head.bias)
    loaded.resize_token_embeddings(30)
    assert torch.equal(loaded.lm_head.bias[:23], model.lm_head.bias)
    assert loaded.lm_head.bias.shape == (30,)


# --- from a folder ---


@pytest.fixture
def opus_folder(tmp_path):
    """A MarianMT folder with files of a tokenizer."""
    return write_opus_folder(tmp_path / "opus")


def test_a_checkpoint_with_a_hole_is_refused(opus_folder):
    theirs = MarianMTModel.from_pretrained(opus_folder)
    state = theirs.state_dict()
    del state["model.encoder.layers.1.fc1.bias"]
    theirs.save_pretrained(opus_folder, state_dict=state)
    with pytest.raises(ValueError, match=r"opus has no weights model\.encoder\.layers\.1\.fc1\.bias"):
        load(opus_folder, "marian")


def test_the_converted_configuration_says_no_more_than_it_must():
    config = config_from_marian(MarianConfig(**OPUS), output_bias=True)
    assert (config.position_encoding, config.norm_placement) == ("sinusoidal_halves", "post")
    assert not hasattr(config, "forced_eos_token_id")
    assert config.target_vocab_size is None
