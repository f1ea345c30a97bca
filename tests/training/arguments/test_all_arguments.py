"""Recipes and command lines: what they set, and the sentence that each mistake gives."""

import pytest

from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.arguments.run_arguments import parse_recipe


def test_an_option_changes_one_field_of_the_recipes_model(recipe, tmp_path):
    for words in (["--model_config", '{"dropout": 0.25}'], ['--model_config={"dropout": 0.25}']):
        model, *_ = parse_recipe("", [*recipe(max_steps=2), *words])
        fields = (model.model_config[name] for name in ("dropout", "encoder_layers", "d_model"))
        assert tuple(fields) == (0.25, 1, 32)
    assert parse_recipe("", [*recipe(), "--model_config", "null"])[0].model_config is None
    for mistake in ("[1]", "3", "{"):
        with pytest.raises(SystemExit, match="model_config"):
            train_script.main([*recipe(), "--model_config", mistake])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_config": {"dropout": 2}}, r"dropout=2 must be at least 0 and less than 1"),
        ({"model_config": {"d_model": "big"}}, r"d_model.*expected int"),
        ({"warmup_steps": 0}, r"warmup_steps=0"),
        ({"lr_scheduler_type": "linear"}, r"linear needs a learning_rate"),
        ({"learning_rate": 1e-3, "rate_factor": 2.0}, r"both given"),
        ({"label_smoothing_factor": 0.1}, r"label_smoothing_factor is for the stock trainer"),
        ({"per_device_train_batch_size": 16}, r"per_device_train_batch_size is for the stock trainer.*max_tokens"),
        ({"eval_beams": 0}, r"eval_beams=0 must be a whole number of 1 or more"),
        ({"num_train_epochs": 2}, r"num_train_epochs=2 does nothing beside max_steps=12: set max_steps to -1"),
        ({"generation_max_length": 9}, r"generation_max_length is for the stock trainer"),
        ({"warmup_steps": None}, r"has a key 'warmup_steps' without a value"),
        ({"max_words": [3]}, r"has max_words=\[3\], but max_words takes one value"),
        ({"vocab_size": 300.5}, r"vocab_size.*invalid int value: '300.5'"),
        ({"num_beams": True}, r"num_beams.*invalid int value: 'True'"),
        ({"num_beams": 0}, r"num_beams=0 must be a whole number of 1 or more"),
        ({"num_beams": "five"}, r"num_beams.*invalid int value: 'five' \(see --help\)"),
        ({"length_penalty": 11}, r"length_penalty=11.0 must lie between -10 and 10"),
        ({"average_checkpoints": -1}, r"average_checkpoints=-1"),
        ({"vocabulary_pairs": 0}, r"vocabulary_pairs=0 must be at least 1"),
        ({"source_lang": False}, r"source_lang=False is not text.*quotes"),
        ({"model_config": {"banana": 1}}, r"'banana' is not a field"),
    ],
)
def test_a_bad_value_ends_in_a_sentence(recipe, keys, message, capsys):
    with pytest.raises(SystemExit, match=message):
        train_script.main(recipe(**keys))
    assert "usage" not in capsys.readouterr().err


def test_a_mistyped_option_ends_in_a_sentence(recipe):
    with pytest.raises(SystemExit, match=r"'--max-stepz' is not an option \(did you mean 'max_steps'\?\)"):
        train_script.main([*recipe(), "--max-stepz", "3"])
