"""The demo trains, resumes or only shows its results. Training itself is replaced: it takes minutes."""

import json
import shutil
from pathlib import Path

import pytest

from vanilla_transformer import Translator
from vanilla_transformer.scripts import demo


@pytest.fixture
def commands(monkeypatch, model_folder):
    """The training arguments of the runs that were started; a started run is finished at once."""
    started = []

    def finish(model, corpus, vocabulary, args):
        started.append((corpus, args))
        folder = Path(args.output_dir)
        shutil.copytree(model_folder, folder / "model", dirs_exist_ok=True)
        results = {"test": {"sacrebleu": {"score": 12.34, "signature": "nrefs:1"}}}
        (folder / "results.json").write_text(json.dumps(results))
        return results

    monkeypatch.setattr(demo.train, "train", finish)
    return started


def test_a_new_demo_trains_the_recipe_and_shows_translations(commands, tmp_path, capsys):
    folder = tmp_path / "demo"
    demo.main(["--output_dir", str(folder)])
    ((corpus, args),) = commands
    assert (corpus.dataset, args.output_dir, args.resume_from_checkpoint) == ("demo", str(folder), "auto")
    printed = capsys.readouterr().out
    assert "BLEU on the test set: 12.3 (nrefs:1)" in printed
    for source, translation in zip(
        demo.SENTENCES, Translator.from_pretrained(folder / "model")(demo.SENTENCES), strict=True
    ):
        assert f"  {source}\n    {translation}\n" in printed
    assert (folder / "attention.png").is_file()


@pytest.mark.slow
def test_a_finished_demo_is_not_trained_again(commands, tmp_path):
    demo.main(["--output_dir", str(tmp_path)])
    demo.main(["--output_dir", str(tmp_path)])
    assert len(commands) == 1


def test_nothing_is_shown_without_a_finished_model(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo.train, "train", lambda *recipe: None)
    demo.main(["--output_dir", str(tmp_path)])
    assert capsys.readouterr().out == f"To resume: run vanilla demo again --output_dir {tmp_path}\n"
