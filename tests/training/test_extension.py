"""Extension from outside: a toy position encoding, score and objective train and decode, and no file of the package is
touched."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.training.runs import losses
from vanilla_transformer import Translator
from vanilla_transformer.models.attention_scores import AttentionScore
from vanilla_transformer.models.positions import WITH_POSITION_BIAS, PositionEncoding
from vanilla_transformer.models.variants import POSITIONS, SCORES
from vanilla_transformer.training import accelerate_loop as train_accelerate
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.arguments.run_arguments import parse_recipe
from vanilla_transformer.training.objectives.cross_entropy import OBJECTIVES


class NearFirst(PositionEncoding):
    """Lowers each score by the distance of the key."""

    acts_on = "scores"
    attn_implementations = WITH_POSITION_BIAS

    def __init__(self, config, num_heads, is_causal):
        super().__init__()

    def for_attention(self, query_positions, key_positions):
        distances = (key_positions - query_positions[:, None]).abs()  # [T, S]
        return {"position_bias": -0.1 * distances[None, None].float()}


class Cosine(AttentionScore):
    """Eight times the cosine of query and key."""

    def forward(self, query, key):
        normalize = torch.nn.functional.normalize
        return 8 * torch.matmul(normalize(query, dim=-1), normalize(key, dim=-1).transpose(-2, -1))


def make_twice(args, config, pad_token_id):
    """Twice the cross-entropy."""
    cross_entropy = OBJECTIVES["cross_entropy"](args, config, pad_token_id)
    return lambda model, inputs, num_items_in_batch=None: 2 * cross_entropy(model, inputs, num_items_in_batch)


@pytest.fixture
def toys(monkeypatch):
    """Registers the toys, and returns the config fields that select them."""
    monkeypatch.setitem(POSITIONS, "near_first", NearFirst)
    monkeypatch.setitem(SCORES, "cosine", Cosine)
    monkeypatch.setitem(OBJECTIVES, "twice", make_twice)
    return {"position_encoding": "near_first", "score_function": "cosine"}


KEYS = {"max_steps": 2, "eval_strategy": "no", "average_checkpoints": 0, "gradient_accumulation_steps": 2}


@pytest.mark.parametrize("model_type", ["vanilla_transformer", "marian"])
def test_a_toy_objective_trains_in_both_loops(recipe, tmp_path, toys, model_type):
    keys = {**KEYS, "model_type": model_type, "model_config": toys if model_type == "vanilla_transformer" else {}}
    arguments = parse_recipe("", recipe(**keys, output_dir=str(tmp_path / "loop"), objective="twice"))
    train_script.main(recipe(**keys, output_dir=str(tmp_path / "plain")))
    train_script.main(recipe(**keys, output_dir=str(tmp_path / "twice"), objective="twice"))
    # Adam does not depend on the scale of the loss, so both runs have the same weights at each step.
    expected = [2 * loss for loss in losses(tmp_path / "plain")]
    assert losses(tmp_path / "twice") == pytest.approx(expected, rel=1e-3)
    assert train_accelerate.train(*arguments) == pytest.approx(expected, rel=1e-3)
    assert "objective: twice" in (tmp_path / "twice" / "recipe.yaml").read_text()


def test_toy_positions_and_scores_train_and_decode(recipe, tmp_path, toys):
    train_script.main(recipe(model_config=toys, objective="twice", output_dir=str(tmp_path / "run")))
    folder = tmp_path / "run" / "model"
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    decoder = model.model.decoder
    assert isinstance(decoder.embed_positions, NearFirst)
    assert isinstance(decoder.layers[0].encoder_attn.score, Cosine)

    (hypothesis,) = next(
        Translator.from_pretrained(folder).translate(["a b c d"], penalty="length", length_penalty=1.0)
    )
    inputs = AutoTokenizer.from_pretrained(folder)("a b c d", return_tensors="pt")
    options = {"num_beams": 4, "length_penalty": 1.0, "early_stopping": "never", "output_scores": True}
    stock = model.generate(**inputs, **options, return_dict_in_generate=True)
    assert hypothesis.score == pytest.approx(stock.sequences_scores.item(), abs=1e-4)


def test_r_drop_trains_in_both_loops_from_one_key_of_the_recipe(recipe, tmp_path):
    keys = {**KEYS, "r_drop": 5.0, "model_config": {"dropout": 0.2}}
    train_script.main(recipe(output_dir=str(tmp_path / "trainer"), **keys))
    plain = {**keys, "r_drop": 0.0}
    train_script.main(recipe(output_dir=str(tmp_path / "plain"), **plain))
    assert losses(tmp_path / "trainer")[0] > losses(tmp_path / "plain")[0]
    arguments = parse_recipe("", recipe(output_dir=str(tmp_path / "loop"), **keys))
    assert len(train_accelerate.train(*arguments)) == 2
