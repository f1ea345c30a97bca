import json
import os
import signal
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.training import callbacks
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.callbacks import MetricsFile, SetEpoch, StopAtNan, StopGently
from vanilla_transformer.training.run_folder.checkpoints import complete_checkpoints, scheduled_checkpoints, step_of


def test_a_loss_that_is_not_a_number_ends_the_run_and_keeps_the_last_good_checkpoint(recipe, tmp_path):
    command = recipe(rate_factor=1e18, max_steps=40, save_steps=1, save_total_limit=2, eval_strategy="no")
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


def test_the_first_ctrl_c_saves_and_stops_and_the_second_stops_at_once(capsys, monkeypatch):
    clock = iter([10.0, 10.5, 13.0])
    monkeypatch.setattr(callbacks.time, "monotonic", lambda: next(clock))
    callback, control = StopGently(), SimpleNamespace(should_save=False, should_training_stop=False)
    callback.on_step_end(SimpleNamespace(world_size=1), state(1), control)
    assert not control.should_training_stop
    callback._request(signal.SIGINT, None)
    assert "Press Ctrl-C again" in capsys.readouterr().out
    callback.on_step_end(SimpleNamespace(world_size=1), state(1), control)
    assert control.should_save
    assert control.should_training_stop
    assert callback.saves_extra
    callback._request(signal.SIGINT, None)  # the same one, which a launcher has passed on
    callback._request(signal.SIGTERM, None)
    with pytest.raises(KeyboardInterrupt):
        callback._request(signal.SIGINT, None)


def test_an_interruption_changes_nothing_in_the_end(recipe, tmp_path, monkeypatch, capsys):
    """The mean has the scheduled checkpoints only, and an extra one does not push out a scheduled one."""
    keys = {"save_total_limit": 2, "average_checkpoints": 2, "eval_strategy": "no", "validation_files": []}
    keys["model_config"] = {"dropout": 0.1}
    train_script.main(recipe(output_dir=str(tmp_path / "whole"), **keys))
    parts = tmp_path / "parts"
    real = StopGently.on_step_end

    def interrupted(self, args, state, control, **options):
        if state.global_step in (6, 8):
            os.kill(os.getpid(), signal.SIGINT if state.global_step == 6 else signal.SIGTERM)
        return real(self, args, state, control, **options)

    command = recipe(output_dir=str(parts), **keys)
    with monkeypatch.context() as patch:
        patch.setattr(StopGently, "on_step_end", interrupted)
        for step, resume, scheduled in [(6, [], [4]), (8, ["--resume_from_checkpoint", "last"], [4, 8])]:
            train_script.main([*command, *resume])
            assert f"Stopped at step {step}" in capsys.readouterr().out
            assert [step_of(path) for path in complete_checkpoints(parts)] == [4, step]
            assert [step_of(path) for path in scheduled_checkpoints(parts)] == scheduled
    train_script.main([*command, "--resume_from_checkpoint", "last"])
    results = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("whole", "parts")]
    assert results[1]["averaged"] == results[0]["averaged"] == ["checkpoint-8", "checkpoint-12"]
    assert {path.name for path in parts.glob("checkpoint-*")} == {"checkpoint-8", "checkpoint-12"}
    weights = [load_file(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "parts")]
    assert_close(*weights, rtol=0, atol=0)


def test_a_full_disk_under_the_tokenizer_of_a_checkpoint_gets_a_sentence(recipe, monkeypatch):
    def save(*args, **options):
        raise Exception("No space left on device (os error 28)")  # what `tokenizers` raises

    command = recipe(max_steps=2, eval_strategy="no", validation_files=[])
    monkeypatch.setattr("vanilla_transformer.training.trainer.Seq2SeqTrainer._save", save)
    with pytest.raises(SystemExit, match=r"checkpoint-2 could not be written \(No space left.*Is the disk full"):
        train_script.main(command)
