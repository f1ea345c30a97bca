import shutil

import pytest
import yaml

from vanilla_transformer.training import train as train_script


def test_the_recipe_of_a_run_is_all_of_it_but_the_secrets(recipe, tmp_path, monkeypatch):
    keys = {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-5}, "learning_rate": 1e-3}
    words = [*recipe(max_steps=2, eval_strategy="no", **keys), "--hub_token=hf_secret"]
    monkeypatch.setattr("sys.argv", ["vanilla-train", *words, "--hub-token", "hf_secret"])
    train_script.main(words)
    written = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())
    assert written["lr_scheduler_kwargs"] == {"min_lr": 1e-5}
    assert not {"hub_token", "fsdp_config", "gradient_checkpointing_kwargs"} & written.keys()
    for name in ("run.json", "recipe.yaml"):
        assert "hf_secret" not in (tmp_path / "run" / name).read_text()


def test_a_run_that_died_before_its_first_checkpoint_starts_again(recipe, tmp_path):
    train_script.main(recipe(max_steps=2, eval_strategy="no"))
    for path in (tmp_path / "run").glob("checkpoint-*"):
        shutil.rmtree(path)
    with pytest.raises(SystemExit, match="already holds a run"):
        train_script.main(recipe(max_steps=2))
    shutil.rmtree(tmp_path / "run" / "model")
    train_script.main(recipe(max_steps=2, eval_strategy="no"))
    assert (tmp_path / "run" / "model").is_dir()


def test_resuming_with_other_data_is_refused(recipe, tmp_path):
    train_script.main(recipe(max_steps=4))
    with pytest.raises(SystemExit, match=r"was started with max_tokens=128, not 64"):
        train_script.main([*recipe(max_steps=8, max_tokens=64), "--resume_from_checkpoint", "last"])
