"""Objectives: the loss of any model by one call, whether or not its forward takes a criterion."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy
from vanilla_transformer.training.objectives import cross_entropy as objectives
from vanilla_transformer.training.objectives.cross_entropy import CriterionObjective, make_objective, takes_criterion


@pytest.fixture
def marian():
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 16}
    ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = AutoConfig.for_model("marian", vocab_size=23, **sizes, **heads, **ids, dropout=0.0)
    return AutoModelForSeq2SeqLM.from_config(config)


def with_decoder_input(model, batch):
    """Adds what `DataCollatorForSeq2Seq` adds."""
    return {**batch, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(batch["labels"])}


def arguments(**fields):
    return SimpleNamespace(**{"objective": "cross_entropy", "smoothing": "others", "r_drop": 0.0, **fields})


@pytest.mark.parametrize("number", [None, 11, torch.tensor(11)])
def test_the_models_loss_is_bit_identical_to_the_criterion_passed_by_hand(make_model, batch, number):
    model = make_model(dropout=0.0, label_smoothing=0.2).train()
    expected = model(**batch, criterion=LabelSmoothedCrossEntropy(0.2), num_items_in_batch=number)
    assert expected.logits is None
    loss = make_objective(arguments(), model.config, 0)(model, batch, number)
    assert torch.equal(loss, expected.loss)


@pytest.mark.parametrize("number", [None, 11])
def test_another_model_hands_out_logits(marian, batch, number):
    marian.config.label_smoothing = 0.2
    inputs = with_decoder_input(marian, batch)
    loss = make_objective(arguments(), marian.config, 0)(marian.train(), inputs, number)
    logits = marian(**inputs).logits
    assert_close(loss, LabelSmoothedCrossEntropy(0.2).of_logits(logits, batch["labels"], number))
    assert "labels" in inputs, "the caller's inputs stay as they are"


def test_without_smoothing_the_loss_is_plain_cross_entropy(marian, batch):
    loss = make_objective(arguments(), marian.config, 0)(marian, with_decoder_input(marian, batch))
    assert_close(loss, marian(**batch).loss)


class Peft(nn.Module):
    """Wraps a model as PEFT does: the adapter's `forward` takes any keyword."""

    def __init__(self, model):
        super().__init__()
        self.base_model = nn.Module()
        self.base_model.model = model

    def forward(self, **inputs):
        return self.base_model.model(**inputs)


def test_wrappers_do_not_hide_the_criterion(make_model, marian, monkeypatch):
    model = make_model()
    monkeypatch.setattr(objectives, "unwrap_peft_model", lambda m: m.base_model.model if isinstance(m, Peft) else m)
    for wrap in (lambda m: m, nn.DataParallel, torch.compile, Peft, lambda m: nn.DataParallel(Peft(m))):
        assert takes_criterion(wrap(model))
        assert not takes_criterion(wrap(marian))


def test_a_replaced_forward_does_not_hide_the_criterion(make_model):
    """Accelerate replaces the `forward` of an instance for mixed precision."""
    model = make_model()
    forward = model.forward
    model.forward = lambda *args, **kwargs: forward(*args, **kwargs)
    assert takes_criterion(model)


def test_any_class_whose_forward_takes_a_criterion_gets_it(batch):
    """Remote code has its own classes: only the signature counts."""

    class Remote(nn.Module):
        def forward(self, input_ids, attention_mask, labels, criterion=None, num_items_in_batch=None):
            return {"loss": criterion.of_logits(torch.zeros(*labels.shape, 23), labels, num_items_in_batch)}

    loss = CriterionObjective(LabelSmoothedCrossEntropy(0.0))(Remote(), batch)
    assert_close(loss, torch.tensor(23.0).log())


def test_an_unknown_objective_is_named_with_a_suggestion(make_config):
    with pytest.raises(ValueError, match=r"objective='cross_entrpy' is unknown \(did you mean 'cross_entropy'\?\)"):
        make_objective(arguments(objective="cross_entrpy"), make_config(), 0)
