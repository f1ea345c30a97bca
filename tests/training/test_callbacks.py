import json
from types import SimpleNamespace

import pytest
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.callbacks import MetricsFile, SetEpoch, StopAtNan, StopGently


def test_a_loss_that_is_not_a_number_ends_the_run_and_keeps_the_last_good_checkpoint(recipe, tmp_path):
    command = recipe(rate_factor=1e30, max_steps=40, save_steps=1, save_total_limit=2, eval_strategy="no")
    with pytest.raises(SystemExit, match=r"(?s)stopped being a number before step \d+.*rate_factor"):
        train_script.main(command)
    for path in (tmp_path / "run").glob("checkpoint-*"):
        state = AutoModelForSeq2SeqLM.from_pretrained(path).state_dict()
        assert all(tensor.isfinite().all() for tensor in state.values()), path


def state(step, **fields):
    return SimpleNamespace(global_step=step, is_world_process_zero=True, epoch=1.5, **fields)


def test_a_resumed_run_writes_every_step_once(tmp_path):
    args = SimpleNamespace(output_dir=str(tmp_path))
    callback = MetricsFile(tmp_path)
    for step in (1, 2, 3):
        callback.on_log(args, state(step), None, logs={"loss": float(step)})
    MetricsFile(tmp_path).on_train_begin(args, state(2), None)
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_loss_that_is_not_a_number_names_the_last_good_checkpoint(tmp_path):
    args = SimpleNamespace(output_dir=str(tmp_path))
    StopAtNan().on_log(args, state(7), None, logs={"loss": 1.0})
    with pytest.raises(ValueError, match=r"before step 8\. There was no checkpoint yet"):
        StopAtNan().on_log(args, state(8), None, logs={"loss": float("nan")})
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / "complete").touch()
    with pytest.raises(ValueError, match=r"The last good checkpoint is .*checkpoint-4"):
        StopAtNan().on_log(args, state(8), None, logs={"loss": float("inf")})


def test_the_epoch_reaches_sampler_and_noise():
    epochs = []
    part = SimpleNamespace(set_epoch=epochs.append)
    SetEpoch(SimpleNamespace(sampler=part, noisy_collator=part)).on_epoch_begin(None, state(3), None)
    assert epochs == [1, 1]


def test_the_first_ctrl_c_saves_and_stops_and_the_second_stops_at_once(capsys):
    callback, control = StopGently(), SimpleNamespace(should_save=False, should_training_stop=False)
    callback.on_step_end(SimpleNamespace(world_size=1), state(1), control)
    assert not control.should_training_stop
    callback._request(2, None)
    assert "Press Ctrl-C again" in capsys.readouterr().out
    callback.on_step_end(SimpleNamespace(world_size=1), state(1), control)
    assert control.should_save
    assert control.should_training_stop
    with pytest.raises(KeyboardInterrupt):
        callback._request(2, None)
