"""The three definitions of label smoothing against the target distributions they define."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close
from transformers.trainer_pt_utils import LabelSmoother

from vanilla_transformer.models import devices
from vanilla_transformer.models import label_smoothing as loss
from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy


V, PAD, EPSILON = 11, 0, 0.1
CRITERION = LabelSmoothedCrossEntropy()


def distribution(smoothing: str, gold: int) -> torch.Tensor:
    """The smoothed target, one probability after another."""
    left_out = {"all": set(), "others": {gold}, "no_padding": {gold, PAD}}[smoothing]
    target = torch.tensor([0.0 if v in left_out else EPSILON / (V - len(left_out)) for v in range(V)])
    target[gold] += 1 - EPSILON
    return target


def batch():
    logits, labels = torch.randn(3, 5, V), torch.randint(1, V, (3, 5))
    labels[0, 3:] = labels[2, 1:] = -100
    return logits, labels


@pytest.mark.parametrize("smoothing", ["others", "all", "no_padding"])
def test_the_loss_is_the_cross_entropy_with_the_defined_distribution(smoothing):
    logits, labels = batch()
    loss = LabelSmoothedCrossEntropy(EPSILON, smoothing, pad_token_id=PAD)({"logits": logits}, labels)
    terms = []
    for row, place in (labels != -100).nonzero().tolist():
        target = distribution(smoothing, labels[row, place].item())
        assert target.sum().item() == pytest.approx(1)
        terms.append(-(target * logits[row, place].log_softmax(-1)).sum())
    assert_close(loss, torch.stack(terms).mean())


def test_all_is_torchs_and_the_trainers_definition():
    logits, labels = batch()
    loss = LabelSmoothedCrossEntropy(EPSILON, "all")({"logits": logits}, labels)
    assert_close(loss, F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=EPSILON))
    assert_close(loss, LabelSmoother(EPSILON)({"logits": logits}, labels))


def test_no_smoothing_is_plain_cross_entropy():
    logits, labels = batch()
    for smoothing in ("others", "all"):
        loss = LabelSmoothedCrossEntropy(0.0, smoothing)({"logits": logits}, labels)
        assert_close(loss, F.cross_entropy(logits.flatten(0, 1), labels.flatten()))


@pytest.mark.parametrize("smoothing", ["others", "all", "no_padding"])
def test_pieces_add_up_to_the_whole(smoothing):
    logits, labels = batch()
    criterion = LabelSmoothedCrossEntropy(EPSILON, smoothing, pad_token_id=PAD)
    items = (labels != -100).sum()
    for number in (items, items.item()):
        pieces = [criterion({"logits": logits[row, None]}, labels[row, None], number) for row in range(3)]
        assert_close(sum(pieces), criterion({"logits": logits}, labels))


def test_half_precision_logits_are_summed_in_full_precision():
    logits, labels = batch()
    loss = LabelSmoothedCrossEntropy()({"logits": logits.bfloat16()}, labels)
    assert loss.dtype == torch.float32
    assert_close(loss, LabelSmoothedCrossEntropy()({"logits": logits.bfloat16().float()}, labels))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 1.0}, "label smoothing of 1.0 must be"),
        ({"smoothing": "none"}, "smoothing='none' is unknown: choose one of others, all, no_padding"),
        ({"smoothing": "no_padding"}, "needs the pad_token_id"),
    ],
)
def test_mistakes_get_a_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        LabelSmoothedCrossEntropy(**arguments)


# --- straight from the states ---


@pytest.mark.parametrize("smoothing", ["others", "all", "no_padding"])
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("can_look", [True, False])
def test_the_loss_of_states_is_that_of_their_logits_and_so_are_its_gradients(
    smoothing, epsilon, can_look, monkeypatch
):
    """On a CPU, and as on a device whose numbers the host can't look at."""
    monkeypatch.setattr(loss, "TOKENS_AT_A_TIME", 4)
    monkeypatch.setattr(devices, "FREE_DEVICES", {"cpu"} if can_look else set())
    monkeypatch.setattr(loss, "_tokens_at_a_time", lambda vocab_size: 4)
    criterion = LabelSmoothedCrossEntropy(epsilon, smoothing, pad_token_id=PAD)
    _, labels = batch()
    leaves = [torch.randn(*shape, requires_grad=True) for shape in ((3, 5, 6), (V, 6), (V,))]
    states, weight, bias = leaves
    for items in (None, 20):
        expected = criterion.of_logits(F.linear(*leaves), labels, items)
        found = criterion.of_states(states, weight, labels, items, bias)
        assert_close(found, expected)
        assert_close(torch.autograd.grad(found * 3, leaves), torch.autograd.grad(expected * 3, leaves))
        with torch.no_grad():
            assert_close(criterion.of_states(states, weight, labels, items, bias), expected)


def test_a_frozen_output_layer_has_no_gradient():
    _, labels = batch()
    states, weight = torch.randn(3, 5, 6, requires_grad=True), torch.randn(V, 6)
    CRITERION.of_states(states, weight, labels).backward()
    expected = torch.autograd.grad(CRITERION.of_logits(states @ weight.T, labels), states)[0]
    assert_close(states.grad, expected)


def test_a_piece_has_about_300_mb_of_logits_off_the_cpu():
    assert loss._tokens_at_a_time(37_000) == 1792
    assert loss._tokens_at_a_time(10_000_000) == 256


def test_states_of_half_precision_keep_their_type():
    _, labels = batch()
    states, weight = (torch.randn(*shape, requires_grad=True) for shape in ((3, 5, 6), (V, 6)))
    low = [tensor.detach().bfloat16().requires_grad_() for tensor in (states, weight)]
    LabelSmoothedCrossEntropy().of_states(*low, labels).backward()
    LabelSmoothedCrossEntropy().of_states(states, weight, labels).backward()
    for found, expected in zip(low, (states, weight), strict=True):
        assert found.grad.dtype == torch.bfloat16
        assert_close(found.grad.float(), expected.grad, atol=0.02, rtol=0.05)


def test_it_can_be_used_under_autocast():
    _, labels = batch()
    states, weight = (torch.randn(*shape, requires_grad=True) for shape in ((3, 5, 6), (V, 6)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        LabelSmoothedCrossEntropy().of_states(states, weight, labels).backward()
    found = states.grad.clone(), weight.grad.clone()
    states.grad = weight.grad = None
    LabelSmoothedCrossEntropy().of_states(states, weight, labels).backward()
    assert_close(found, (states.grad, weight.grad), atol=0.02, rtol=0.05)
