"""The plain loop: it gives what the trainer gives, and refuses what it does not support."""

import json
import shutil

import pytest
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from tests.training.runs import final_weights, losses
from vanilla_transformer.training import accelerate_loop as train_accelerate
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.arguments.run_arguments import parse_recipe


def test_the_plain_loop_gives_the_trainers_losses_and_weights(recipe, tmp_path):
    files = [str(tmp_path / name) for name in ("pairs0", "pairs1")]
    keys = {
        "average_checkpoints": 0,
        "gradient_accumulation_steps": 2,
        "train_files": files,
        "train_weights": [0.5, 3],
    }
    train_script.main(recipe(output_dir=str(tmp_path / "trainer"), **keys))
    arguments = parse_recipe("", recipe(output_dir=str(tmp_path / "loop"), **keys))
    in_loop = train_accelerate.train(*arguments)
    assert in_loop == pytest.approx(losses(tmp_path / "trainer"), rel=1e-4)
    for name, tensor in final_weights(tmp_path / "loop").items():
        assert_close(tensor, final_weights(tmp_path / "trainer")[name], rtol=1e-4, atol=1e-5)
    for run in ("trainer", "loop"):
        description = json.loads((tmp_path / run / "run.json").read_text())
        assert list(description["cleaning"]["mixed"].values()) == [200, 60]
        assert description["pairs"]["train"] == 260


def test_a_resumed_loop_gives_the_losses_and_weights_of_one_that_was_not_stopped(recipe, tmp_path):
    keys = {"save_strategy": "steps", "save_steps": 3, "average_checkpoints": 0, "max_steps": 12}

    def loop(name, **more):
        arguments = parse_recipe("", recipe(output_dir=str(tmp_path / name), **{**keys, **more}))
        return train_accelerate.train(*arguments)

    whole = loop("whole")
    stopped = loop("stopped", max_steps=7)
    shutil.rmtree(tmp_path / "stopped" / "model")
    resumed = loop("stopped", resume_from_checkpoint="auto")
    assert [*stopped[:6], *resumed] == whole
    for name, tensor in final_weights(tmp_path / "stopped").items():
        assert_close(tensor, final_weights(tmp_path / "whole")[name], rtol=0, atol=0)


@pytest.mark.parametrize("model_type", ["marian", "t5", "rnn_search"])
def test_the_loop_trains_other_architectures_as_the_trainer_does(recipe, tmp_path, model_type):
    keys = {"model_type": model_type, "max_steps": 2, "gradient_accumulation_steps": 2, "eval_strategy": "no"}
    keys |= {"average_checkpoints": 0, "model_config": {"label_smoothing": 0.1}}
    train_script.main(recipe(output_dir=str(tmp_path / "trainer"), **keys))
    arguments = parse_recipe("", recipe(output_dir=str(tmp_path / "loop"), **keys))
    in_loop = train_accelerate.train(*arguments)
    assert len(in_loop) == 2
    assert in_loop == pytest.approx(losses(tmp_path / "trainer"), rel=1e-4)
    expected = final_weights(tmp_path / "trainer")
    for name, tensor in final_weights(tmp_path / "loop").items():
        assert_close(tensor, expected[name], rtol=1e-4, atol=1e-4)  # the steps are of the order of 0.01


def test_separate_vocabularies_are_saved_with_the_model(recipe, tmp_path):
    arguments = parse_recipe("", recipe(separate=True, max_steps=1, vocab_size=280))
    train_accelerate.train(*arguments)
    folder = tmp_path / "run" / "model"
    target = AutoTokenizer.from_pretrained(folder, subfolder="target")
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).config.target_vocab_size == len(target)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"bpe_dropout": 0.1}, "does not support bpe_dropout: leave it out"),
        ({"max_steps": -1}, "supports only inverse_sqrt, max_steps and corpora on disk"),
        ({"resume_from_checkpoint": "last"}, "has no complete checkpoint to resume from"),
    ],
)
def test_keys_that_the_loop_does_not_read_are_refused(recipe, keys, message):
    with pytest.raises(SystemExit, match=message):
        train_accelerate.main(recipe(**keys))


def test_progress_has_loss_speed_and_remaining_time():
    line = train_accelerate.progress(12, [3.0, 2.5], max_steps=252, seconds=1.0)
    assert line.split() == ["step", "12", "loss", "2.5000", "2.0", "updates/s", "2", "min", "left"]
