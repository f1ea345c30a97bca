"""The written model is the mean of the checkpoints, and nothing else is touched."""

import pytest
from torch.testing import assert_close
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer.scripts import average_checkpoints
from vanilla_transformer.training.run_folder.checkpoints import COMPLETE


@pytest.fixture
def run(make_model, tmp_path):
    """Checkpoints at steps 5, 10 and 15 of a run, and a later one that is incomplete."""
    models = {}
    for step in (5, 10, 15, 20):
        models[step] = make_model()
        models[step].save_pretrained(tmp_path / f"checkpoint-{step}")
        if step < 20:
            (tmp_path / f"checkpoint-{step}" / COMPLETE).touch()
    return tmp_path, models


def test_the_written_model_is_the_mean(run, tmp_path, capsys):
    folder, models = run
    average_checkpoints.main(["--run", str(folder), "--last", "2", "--output_dir", str(tmp_path / "mean")])
    assert "mean of 2 checkpoints (checkpoint-10 to checkpoint-15)" in capsys.readouterr().out
    mean = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
    for name, parameter in mean.named_parameters():
        expected = (models[10].get_parameter(name) + models[15].get_parameter(name)) / 2
        assert_close(parameter, expected)
    with pytest.raises(SystemExit, match="already there"):
        average_checkpoints.main(["--run", str(folder), "--output_dir", str(tmp_path / "mean")])


def test_other_architectures_and_other_folders_are_refused(run, make_model, tmp_path):
    folder, _ = run
    make_model(dropout=0.3, encoder_layers=1).save_pretrained(tmp_path / "other")
    paths = [str(folder / "checkpoint-5"), str(tmp_path / "other")]
    with pytest.raises(SystemExit, match=r"other has dropout=0.3 but .*checkpoint-5 has dropout=0.1"):
        average_checkpoints.main(["--checkpoints", *paths, "--output_dir", str(tmp_path / "x")])
    with pytest.raises(SystemExit, match="has no complete checkpoint"):
        average_checkpoints.main(["--run", str(tmp_path / "other"), "--output_dir", str(tmp_path / "x")])
    with pytest.raises(SystemExit, match="holds a training run"):
        average_checkpoints.main(["--run", str(folder), "--output_dir", str(folder), "--overwrite"])
    (tmp_path / "runs" / "another").mkdir(parents=True)
    with pytest.raises(SystemExit, match=r"has no config\.json, so it is no older result"):
        average_checkpoints.main(["--run", str(folder), "--output_dir", str(tmp_path / "runs"), "--overwrite"])
    with pytest.raises(SystemExit, match="either --run or --checkpoints"):
        average_checkpoints.main(["--output_dir", str(tmp_path / "x")])
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit, match="file is a file: choose another --output_dir"):
        average_checkpoints.main(["--run", str(folder), "--output_dir", str(tmp_path / "file"), "--overwrite"])
    assert not (tmp_path / "x").exists()
