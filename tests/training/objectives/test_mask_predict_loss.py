"""Masks for training: which tokens are masked, and the loss of the objectives."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy
from vanilla_transformer.training.objectives.cross_entropy import make_objective
from vanilla_transformer.training.objectives.mask_predict_loss import MaskedTargets, choose


MASK, END, PAD, IGNORED = 22, 2, 0, -100
TARGETS = MaskedTargets(MASK, END, PAD)


def arguments(**fields):
    defaults = {"smoothing": "others", "r_drop": 0.0, "glancing_ratio": 0.5, "prefix_replace": 0.0, "prefix_drop": 0.0}
    return SimpleNamespace(**{"objective": "uniform_masking", **defaults, **fields})


@pytest.fixture
def targets(batch):
    """The batch with targets of 4, 2 and 0 tokens and `</s>`."""
    labels = torch.tensor([[5, 6, 7, 8, END], [9, 5, END, IGNORED, IGNORED], [END, *[IGNORED] * 4]])
    return {**batch, "labels": labels}


def test_only_tokens_are_masked_and_all_others_stay(targets):
    labels = targets["labels"]
    for _ in range(20):
        masked = TARGETS.uniform(labels)
        tokens = TARGETS.mask(labels, masked)
        assert torch.equal(tokens == MASK, masked)
        assert torch.equal(tokens[~masked], labels.masked_fill(labels == IGNORED, PAD)[~masked])
        assert masked.sum(1)[:2].min() >= 1
        assert masked[2].sum() == 0, "a target without tokens has no mask"


def test_the_number_of_masks_is_uniform_and_so_are_their_places():
    masked = TARGETS.uniform(torch.tensor([[5, 6, 7, 8, END]]).expand(40_000, -1))
    numbers = Counter(masked.sum(1).tolist())
    assert set(numbers) == {1, 2, 3, 4}
    assert all(abs(count / 40_000 - 1 / 4) < 0.02 for count in numbers.values())
    assert_close(masked.float().mean(0), torch.tensor([0.625] * 4 + [0.0]), atol=0.02, rtol=0)


def test_a_choice_has_the_asked_number_of_candidates_or_all_of_them():
    candidates = torch.tensor([[True, True, False, True], [True, False, False, False]])
    chosen = choose(candidates, torch.tensor([2, 3]))
    assert chosen.sum(1).tolist() == [2, 1]
    assert not (chosen & ~candidates).any()


@pytest.mark.parametrize(("ratio", "shown"), [(0.0, 0), (0.5, 1), (1.0, 3)])
def test_glancing_shows_as_many_tokens_as_the_first_pass_has_mistakes_times_the_ratio(ratio, shown):
    labels = torch.tensor([[5, 6, 7, 8, END, IGNORED]])
    predicted = torch.tensor([[5, 9, 9, 9, 4, 4]])  # three mistakes; the end and padding do not count
    masked = TARGETS.glancing(labels, predicted, ratio)
    assert masked[0, :4].sum() == 4 - shown
    assert not masked[0, 4:].any()


@pytest.mark.parametrize("number", [None, 31])
def test_uniform_masking_is_the_models_loss_of_these_masks(make_mask_model, targets, number):
    model = make_mask_model(dropout=0.0, label_smoothing=0.2).train()
    objective = make_objective(arguments(), model.config, PAD)
    torch.manual_seed(3)
    loss = objective(model, targets, number)
    torch.manual_seed(3)
    decoder_input_ids = TARGETS.mask(targets["labels"], TARGETS.uniform(targets["labels"]))
    inputs = {**targets, "decoder_input_ids": decoder_input_ids}
    assert_close(loss, model(**inputs, criterion=LabelSmoothedCrossEntropy(0.2), num_items_in_batch=number).loss)
    assert "decoder_input_ids" not in targets, "the caller's inputs stay as they are"


def test_glancing_is_the_loss_of_the_tokens_that_are_not_shown(make_mask_model, targets):
    model = make_mask_model(dropout=0.0, label_smoothing=0.0).train()
    objective = make_objective(arguments(objective="glancing", glancing_ratio=1.0), model.config, PAD)
    labels = targets["labels"]
    source = {name: targets[name] for name in ("input_ids", "attention_mask")}
    predicted = model(**source, decoder_input_ids=TARGETS.mask(labels, TARGETS.maskable(labels))).logits.argmax(-1)
    torch.manual_seed(3)
    loss = objective(model, targets)
    torch.manual_seed(3)
    masked = TARGETS.glancing(labels, predicted, 1.0)
    assert_close(loss, model(**targets, decoder_input_ids=TARGETS.mask(labels, masked)).loss)
    loss.backward()
    assert model.lm_head.weight.grad is not None


@pytest.mark.parametrize("objective", ["uniform_masking", "glancing"])
def test_masks_need_a_model_that_has_them(make_config, objective):
    with pytest.raises(ValueError, match=f"objective='{objective}' does not fit model_type vanilla_transformer: set"):
        make_objective(arguments(objective=objective), make_config(), PAD)


@pytest.mark.parametrize("objective", ["cross_entropy", "r_drop"])
def test_a_model_with_masks_needs_an_objective_that_makes_them(make_mask_model, objective):
    with pytest.raises(ValueError, match=f"'{objective}' does not fit model_type mask_predict: set it to uniform_mas"):
        make_objective(arguments(objective=objective, r_drop=5.0), make_mask_model().config, PAD)


def test_noise_on_a_prefix_is_refused(make_mask_model):
    with pytest.raises(ValueError, match=r"prefix_drop=0.1: this decoder reads masks and no prefix"):
        make_objective(arguments(prefix_drop=0.1), make_mask_model().config, PAD)
