"""The demo trains, resumes or only shows its results. Training itself is replaced: it takes minutes."""

import json
import shutil
from pathlib import Path

import pytest

from vanilla_transformer import Translator
from vanilla_transformer.scripts import demo
from vanilla_transformer.training.data.demo_corpus import demo_corpus


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
    # There is no terminal to ask on.
    assert f'vanilla translate "Where is my key?" --model {folder / "model"}' in printed


def test_the_sentences_are_not_in_the_training_text():
    training = {"".join(filter(str.isalnum, pair["en"])).lower() for pair in demo_corpus("train")}
    assert not training & {"".join(filter(str.isalnum, sentence)).lower() for sentence in demo.SENTENCES}


@pytest.mark.parametrize("last", ["  ", EOFError])
def test_on_a_terminal_the_readers_sentences_are_translated_until_an_empty_line(
    commands, tmp_path, capsys, monkeypatch, last
):
    lines = iter(["The cat sleeps.", " A dog runs. ", last, "unread"])

    def read(prompt):
        line = next(lines)
        if line is EOFError:
            raise EOFError
        return line

    monkeypatch.setattr(demo, "on_terminal", lambda stream: True)
    monkeypatch.setattr("builtins.input", read)
    demo.main(["--output_dir", str(tmp_path)])
    expected = Translator.from_pretrained(tmp_path / "model")(["The cat sleeps.", "A dog runs."])
    printed = capsys.readouterr().out
    assert printed.endswith("".join(f"  {translation}\n" for translation in expected))
    assert next(lines) == "unread"


@pytest.mark.slow
def test_a_finished_demo_is_not_trained_again(commands, tmp_path):
    demo.main(["--output_dir", str(tmp_path)])
    demo.main(["--output_dir", str(tmp_path)])
    assert len(commands) == 1


def test_nothing_is_shown_without_a_finished_model(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo.train, "train", lambda *recipe: None)
    demo.main(["--output_dir", str(tmp_path)])
    assert capsys.readouterr().out == f"To resume: run vanilla demo again --output_dir {tmp_path}\n"
