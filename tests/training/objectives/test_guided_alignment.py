"""Guided alignment against its formula, from the attention weights that the model returns."""

from types import SimpleNamespace

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from torch.testing import assert_close

from vanilla_transformer import MaskPredictConfig, RnnSearchConfig
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.objectives.cross_entropy import make_objective


def arguments(**fields):
    plain = {"objective": "guided_alignment", "guided_alignment": 0.05, "smoothing": "others"}
    return SimpleNamespace(**{**plain, **fields})


@pytest.fixture
def linked(batch):
    """The batch with links: most target tokens have one, some two, some none."""
    links = torch.zeros(3, 6, 7)
    for row, target, source in [(0, 0, 2), (0, 1, 0), (0, 1, 5), (1, 0, 3), (1, 4, 1), (2, 2, 0)]:
        links[row, target, source] = 1
    return {**batch, "links": links / links.sum(-1, keepdim=True).clamp(min=1)}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("number", [None, 40])
@pytest.mark.parametrize(("layers", "layer"), [(1, 0), (2, 0), (3, 1)])
def test_it_is_the_formula(make_model, batch, linked, implementation, number, layers, layer):
    model = make_model(dropout=0.0, decoder_layers=layers)
    model.set_attn_implementation("eager")
    weights = model(**batch, output_attentions=True).cross_attentions[layer][:, 0]  # [B, T, S]
    plain = make_objective(arguments(objective="cross_entropy"), model.config, 0)(model, batch, number)
    count = int((batch["labels"] != -100).sum()) if number is None else number
    expected = plain + 0.05 * -(linked["links"] * weights.clamp(min=1e-30).log()).sum() / count
    model.set_attn_implementation(implementation)
    attention = model.model.decoder.layers[layer].encoder_attn
    hooks = len(attention._forward_hooks)
    objective = make_objective(arguments(), model.config, 0)
    assert model.config.alignment_layer == layer
    loss = objective(model.train(), linked, number)
    assert_close(loss, expected)
    assert "links" in linked  # the batch is left as it was
    ours, theirs = (torch.autograd.grad(value, attention.q_proj.weight)[0] for value in (loss, expected))
    assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert len(attention._forward_hooks) == hooks


def test_training_moves_the_first_head_to_the_links(make_model, batch, linked):
    model = make_model(dropout=0.0).train()
    objective = make_objective(arguments(guided_alignment=1.0), model.config, 0)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(150):
        optimizer.zero_grad()
        objective(model, linked).backward()
        optimizer.step()
    model.eval().set_attn_implementation("eager")
    attention = model(**batch, output_attentions=True).cross_attentions[0]
    links, has_link = linked["links"] > 0, linked["links"].sum(-1) > 0
    of_heads = torch.stack([(head * links).sum(-1)[has_link].mean() for head in attention.unbind(1)])
    assert of_heads[0] > 0.9
    assert of_heads[1:].max() < 0.7


def test_what_has_no_such_head_or_other_tokens_is_refused(make_config, make_model, batch, tmp_path):
    additive, rnn, masks = make_config(score_function="additive"), RnnSearchConfig(), MaskPredictConfig()
    for config, sentence in (
        (additive, "guided_alignment does not work with score_function='additive'"),
        (rnn, "guided_alignment is for model_type vanilla_transformer, not rnn_search"),
        (masks, "guided_alignment is for model_type vanilla_transformer, not mask_predict"),
    ):
        with pytest.raises(ValueError, match=sentence):
            make_objective(arguments(), config, 0)
    for name, value in (("bpe_dropout", 0.1), ("gradient_checkpointing", True)):
        with pytest.raises(ValueError, match=f"{name}=.* and guided_alignment=0.05 do not go together"):
            TranslationTrainingArguments(output_dir=str(tmp_path), guided_alignment=0.05, **{name: value})
    with pytest.raises(ValueError, match=r"The batches have no links: add them to the pairs with with_links"):
        make_objective(arguments(), make_config(), 0)(make_model(), batch)
    with pytest.raises(
        StrictDataclassClassValidationError, match=r"alignment_layer=2 is none of the 2 decoder layers"
    ):
        make_config(alignment_layer=2)
