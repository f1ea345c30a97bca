"""R-Drop against plain autograd over whole logits."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from vanilla_transformer.models import devices, label_smoothing
from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy
from vanilla_transformer.training.objectives.cross_entropy import CriterionObjective, make_objective
from vanilla_transformer.training.objectives.r_drop import RDropCrossEntropy


SMOOTHINGS = [(0.0, "others"), (0.1, "others"), (0.1, "all"), (0.2, "no_padding")]


def papers_loss(logits, labels, criterion, alpha, number):
    """(CE1 + CE2 + alpha * (KL(p || q) + KL(q || p)) / 2) / 2, summed over tokens and divided by their number."""
    first, second = logits.chunk(2)
    gold = labels.chunk(2)[0]
    real = gold != -100
    cross_entropy = sum(criterion.per_token(half[real], gold[real]).sum() for half in (first, second))
    p, q = (half[real].log_softmax(-1) for half in (first, second))
    divergence = F.kl_div(q, p, log_target=True, reduction="sum") + F.kl_div(p, q, log_target=True, reduction="sum")
    return (cross_entropy + alpha * divergence / 2) / 2 / (real.sum() if number is None else number)


@pytest.mark.parametrize(("epsilon", "smoothing"), SMOOTHINGS)
@pytest.mark.parametrize("number", [None, 700])
@pytest.mark.parametrize("can_look", [True, False])
def test_values_and_gradients_are_those_of_autograd(monkeypatch, epsilon, smoothing, number, can_look):
    """With more tokens than have their logits at a time, so that pairs must stay together across chunks."""
    monkeypatch.setattr(devices, "FREE_DEVICES", {"cpu"} if can_look else set())
    monkeypatch.setattr(label_smoothing, "_tokens_at_a_time", lambda vocab_size: 256)
    sentences, length, width, vocabulary = 7, 61, 8, 29
    labels = torch.randint(1, vocabulary, (sentences, length))  # 0 is padding
    labels = labels.masked_fill(torch.rand(labels.shape) < 0.2, -100).repeat(2, 1)
    states = torch.randn(2 * sentences, length, width, requires_grad=True)
    weight = torch.randn(vocabulary, width, requires_grad=True)
    bias = torch.randn(vocabulary, requires_grad=True)
    plain = LabelSmoothedCrossEntropy(epsilon, smoothing, pad_token_id=0)
    expected = papers_loss(F.linear(states, weight, bias), labels, plain, 5.0, number)
    gradients = torch.autograd.grad(expected, (states, weight, bias))

    criterion = RDropCrossEntropy(epsilon, smoothing, 0, alpha=5.0)
    with torch.no_grad():
        assert_close(criterion.of_states(states, weight, labels, number, bias), expected, rtol=1e-5, atol=1e-5)
    for loss in (
        criterion.of_states(states, weight, labels, number, bias),
        criterion.of_logits(F.linear(states, weight, bias), labels, number),
    ):
        assert_close(loss, expected, rtol=1e-5, atol=1e-5)
        for gradient, autograd in zip(torch.autograd.grad(loss, (states, weight, bias)), gradients, strict=True):
            assert_close(gradient, autograd, rtol=1e-5, atol=1e-5)


def arguments(**fields):
    return SimpleNamespace(**{"objective": "r_drop", "smoothing": "others", "r_drop": 5.0, **fields})


@pytest.mark.parametrize("number", [None, 20])
def test_without_dropout_or_weight_it_is_cross_entropy(make_model, batch, number):
    model = make_model(dropout=0.0, label_smoothing=0.1).train()
    plain = make_objective(arguments(objective="cross_entropy"), model.config, 0)(model, batch, number)
    for alpha in (0.0, 5.0):  # two equal passes have no divergence
        assert_close(make_objective(arguments(r_drop=alpha), model.config, 0)(model, batch, number), plain)


def test_with_dropout_the_passes_differ_and_the_weight_counts(make_model, batch):
    model = make_model(dropout=0.3).train()
    values = []
    for alpha in (0.0, 5.0):
        torch.manual_seed(1)
        values.append(make_objective(arguments(r_drop=alpha), model.config, 0)(model, batch, 20))
    assert values[1] > values[0] + 0.01


def test_a_model_without_criterion_has_the_same_objective(batch):
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 16}
    ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = AutoConfig.for_model("marian", vocab_size=23, **sizes, **heads, **ids, dropout=0.2)
    model = AutoModelForSeq2SeqLM.from_config(config).train()
    inputs = {**batch, "decoder_input_ids": model.prepare_decoder_input_ids_from_labels(batch["labels"])}
    torch.manual_seed(3)
    loss = make_objective(arguments(), config, 0)(model, inputs, 14)
    torch.manual_seed(3)
    twice = {name: tensor.repeat(2, 1) for name, tensor in inputs.items()}
    labels = twice.pop("labels")
    assert_close(loss, papers_loss(model(**twice).logits, labels, LabelSmoothedCrossEntropy(0.0), 5.0, 14))


def test_halves_that_differ_are_refused(make_model, batch):
    model = make_model().train()
    with pytest.raises(ValueError, match=r"every sentence twice in one batch.* this batch of 3 rows"):
        CriterionObjective(RDropCrossEntropy(0.1))(model, batch)
    with pytest.raises(ValueError, match=r"r_drop=-1.0 must not be negative"):
        RDropCrossEntropy(alpha=-1.0)
