"""The conditional masked language model: what its decoder sees, its loss, and the length predictor."""

import math
import re

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch.testing import assert_close
from transformers import AutoModel, AutoModelForTextEncoding

from vanilla_transformer import MaskPredictConfig, MaskPredictEncoderModel, MaskPredictModel
from vanilla_transformer.converters.from_and_to_marian import to_marian
from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy


MASK, END, IGNORED = 22, 2, -100


@pytest.fixture
def targets():
    """Labels and a decoder input with some of them masked."""
    labels = torch.tensor([[5, 6, 7, 8, END], [9, 5, END, IGNORED, IGNORED], [4, END, *[IGNORED] * 3]])
    masked = torch.tensor([[MASK, 6, MASK, 8, END], [9, MASK, END, 0, 0], [MASK, END, 0, 0, 0]])
    return labels, masked


@pytest.mark.parametrize("position_encoding", ["sinusoidal", "relative", "rotary"])
@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_every_position_sees_all_others_but_no_padding(make_mask_model, position_encoding, attn_implementation):
    model = make_mask_model(position_encoding=position_encoding, attn_implementation=attn_implementation)
    source, target = torch.tensor([[5, 6, 7, END]]), torch.tensor([[8, MASK, 9, END]])
    before = model(input_ids=source, decoder_input_ids=target).logits
    for position in range(4):
        changed = target.clone()
        changed[0, position] = 12
        difference = (model(input_ids=source, decoder_input_ids=changed).logits - before).abs().amax(-1)[0]
        assert (difference > 1e-4).all(), f"position {position} is seen by every other"
    padded = torch.cat([target, torch.zeros(1, 3, dtype=torch.long)], dim=1)
    assert_close(model(input_ids=source, decoder_input_ids=padded).logits[:, :4], before)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("number", [None, 30])
def test_the_loss_is_that_of_masked_tokens_plus_that_of_the_lengths(make_mask_model, batch, targets, training, number):
    model = make_mask_model(dropout=0.0).train(training)
    labels, masked = targets
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    output = model(**source, labels=labels, decoder_input_ids=masked, num_items_in_batch=number)
    assert (output.logits is None) == training
    logits = model(**source, decoder_input_ids=masked).logits.log_softmax(-1)
    total = 0.0
    for row, column in torch.nonzero(masked == MASK).tolist():
        total -= logits[row, column, labels[row, column]].item()
    for row, target_length in enumerate([5, 3, 2]):
        difference = target_length - int(source["attention_mask"][row].sum())
        total -= output.length_logits[row].log_softmax(-1)[min(max(difference, -6), 6) + 6].item()
    assert math.isclose(output.loss.item(), total / (number or 10), rel_tol=1e-4)


def test_label_smoothing_is_for_tokens_only(make_mask_model, batch, targets):
    model = make_mask_model()
    labels, masked = targets
    inputs = {**batch, "labels": labels, "decoder_input_ids": masked}
    criterion = LabelSmoothedCrossEntropy(0.1)
    plain, smoothed = model(**inputs), model(**inputs, criterion=criterion)
    of_masked = labels.masked_fill(masked != MASK, IGNORED)
    expected = criterion.of_logits(plain.logits, of_masked, 10) - LabelSmoothedCrossEntropy(0.0).of_logits(
        plain.logits, of_masked, 10
    )
    assert_close(smoothed.loss - plain.loss, expected)


def test_without_decoder_input_all_tokens_are_masked_and_terms_are_as_many_as_labels(make_mask_model, batch, targets):
    model, labels = make_mask_model(), targets[0]
    all_masked = model.prepare_decoder_input_ids_from_labels(labels)
    assert all_masked.tolist() == [[MASK] * 4 + [END], [MASK, MASK, END, 0, 0], [MASK, END, 0, 0, 0]]
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    assert_close(
        model(**source, labels=labels).loss, model(**source, labels=labels, decoder_input_ids=all_masked).loss
    )


def test_targets_without_a_mask_still_have_the_loss_of_their_length(make_mask_model, batch, targets):
    model, labels = make_mask_model().train(), targets[0]
    visible = labels.masked_fill(labels == IGNORED, 0)
    loss = model(**{**batch, "labels": labels}, decoder_input_ids=visible).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert model.length_predictor.projection.weight.grad.abs().sum() > 0


def test_all_weights_get_a_gradient(make_mask_model, batch, targets):
    model = make_mask_model().train()
    model(**{**batch, "labels": targets[0]}, decoder_input_ids=targets[1]).loss.backward()
    assert not [name for name, parameter in model.named_parameters() if parameter.grad is None]


def test_its_weights_are_those_of_the_autoregressive_model_and_the_length_predictor(make_mask_model, make_model):
    ours, theirs = make_mask_model().state_dict(), make_model().state_dict()
    assert set(ours) - set(theirs) == {"length_predictor.projection.weight", "length_predictor.projection.bias"}
    assert all(ours[name].shape == theirs[name].shape for name in theirs)


def test_the_auto_classes_know_it(make_mask_model, tmp_path):
    model = make_mask_model()
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is MaskPredictModel
    inputs = {**model.dummy_inputs, "use_cache": False}
    assert_close(loaded(**inputs).last_hidden_state, model.model(**inputs).last_hidden_state)
    encoder = AutoModelForTextEncoding.from_pretrained(tmp_path)
    assert type(encoder) is MaskPredictEncoderModel
    source = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    assert_close(encoder(**source).last_hidden_state, model(**inputs).encoder_last_hidden_state)
    with pytest.raises(ValueError, match="Pass decoder_input_ids: the decoder of a mask_predict model"):
        model(**source)


def test_what_only_an_autoregressive_model_can_do_is_refused(make_mask_model):
    model = make_mask_model()
    with pytest.raises(ValueError, match="model_type='mask_predict' can't become"):
        to_marian(model)
    with pytest.raises(ValueError, match="past_key_values are for decoding from left to right"):
        model(**model.dummy_inputs, past_key_values=object())


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"mask_token_id": 50, "vocab_size": 50}, "mask_token_id=50 is not in the target vocabulary"),
        ({"mask_token_id": 2}, "mask_token_id=2 is also the eos_token_id"),
        ({"max_length_difference": 0}, "max_length_difference=0 must be at least 1"),
        ({"eos_token_id": [2, 3]}, r"eos_token_id=\[2, 3\] must be one token"),
    ],
)
def test_impossible_configs_are_refused(fields, sentence):
    with pytest.raises(StrictDataclassError) as error:
        MaskPredictConfig(**fields)
    assert re.search(sentence, str(error.value.__cause__))
