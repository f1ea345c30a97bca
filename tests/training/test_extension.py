"""Extension from outside: a toy objective trains in both loops, and no file of the package is touched."""

import pytest

from tests.training.runs import losses
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training import train_accelerate
from vanilla_transformer.training.objectives import OBJECTIVES


@pytest.fixture
def twice(monkeypatch):
    """Registers twice the cross-entropy under the name `twice`."""

    def make_twice(args, config, pad_token_id):
        cross_entropy = OBJECTIVES["cross_entropy"](args, config, pad_token_id)
        return lambda model, inputs, num_items_in_batch=None: 2 * cross_entropy(model, inputs, num_items_in_batch)

    monkeypatch.setitem(OBJECTIVES, "twice", make_twice)
    return "twice"


KEYS = {"max_steps": 2, "eval_strategy": "no", "average_checkpoints": 0, "gradient_accumulation_steps": 2}


@pytest.mark.parametrize("model_type", ["vanilla_transformer", "marian"])
def test_a_toy_objective_trains_in_both_loops(recipe, tmp_path, twice, model_type):
    keys = {**KEYS, "model_type": model_type}
    train_script.main(recipe(output_dir=str(tmp_path / "plain"), **keys))
    train_script.main(recipe(output_dir=str(tmp_path / "twice"), objective=twice, **keys))
    # Adam does not depend on the scale of the loss, so both runs have the same weights at each step.
    expected = [2 * loss for loss in losses(tmp_path / "plain")]
    assert losses(tmp_path / "twice") == pytest.approx(expected, rel=1e-3)
    arguments = train_script.parse_recipe("", recipe(output_dir=str(tmp_path / "loop"), objective=twice, **keys))
    assert train_accelerate.train(*arguments) == pytest.approx(expected, rel=1e-3)
    assert "objective: twice" in (tmp_path / "twice" / "recipe.yaml").read_text()


def test_r_drop_trains_in_both_loops_from_one_key_of_the_recipe(recipe, tmp_path):
    keys = {**KEYS, "r_drop": 5.0, "model_config": {"dropout": 0.2}}
    train_script.main(recipe(output_dir=str(tmp_path / "trainer"), **keys))
    plain = {**keys, "r_drop": 0.0}
    train_script.main(recipe(output_dir=str(tmp_path / "plain"), **plain))
    assert losses(tmp_path / "trainer")[0] > losses(tmp_path / "plain")[0]
    arguments = train_script.parse_recipe("", recipe(output_dir=str(tmp_path / "loop"), **keys))
    assert len(train_accelerate.train(*arguments)) == 2
