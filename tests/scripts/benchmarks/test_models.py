"""Several models translate the same lines; the first is the reference."""

import shutil

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark, models


def test_speed_and_scores_of_all_models(text, model_folder, tmp_path, capsys, rows):
    first, second = str(model_folder), str(shutil.copytree(model_folder, tmp_path / "copy"))
    texts = ["--input", f"{text}.en", "--references", f"{text}.de", "--sentences", "3"]
    sizes = ["--rounds", "1", "--device", "cpu", "--num_beams", "2"]
    benchmark.main(["models", "--models", first, second, *texts, *sizes])
    printed = capsys.readouterr().out
    names = [f"{model}, {backend}" for backend in ("torch", "ctranslate2") for model in (first, second)]
    found = rows(printed, *names)
    assert found[names[0]][1:3] == ["1.00", "1.00-1.00"]
    assert found[names[0]][3:] == found[names[1]][3:]  # the same weights have the same BLEU and chrF
    assert float(found[names[1]][1]) > 0
    assert "beam 2, 3 sentences" in printed


def test_a_backend_that_is_not_installed_is_left_out_with_a_note(text, model_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(models, "missing", lambda *names: [name for name in names if name == "ctranslate2"])
    folders = ["--models", str(model_folder), str(shutil.copytree(model_folder, tmp_path / "copy"))]
    options = ["--input", f"{text}.en", "--sentences", "2", "--rounds", "1", "--device", "cpu", "--num_beams", "1"]
    benchmark.main(["models", *folders, *options])
    assert models.NOT_INSTALLED in capsys.readouterr().out
    with pytest.raises(SystemExit, match="--backends ctranslate2: not installed"):
        benchmark.main(["models", *folders, *options, "--backends", "ctranslate2"])


def test_a_backend_can_be_left_out(text, model_folder, tmp_path, capsys):
    folders = [str(model_folder), str(shutil.copytree(model_folder, tmp_path / "copy"))]
    options = ["--sentences", "2", "--rounds", "1", "--device", "cpu", "--num_beams", "1", "--backends", "torch"]
    benchmark.main(["models", "--models", *folders, "--input", f"{text}.en", *options])
    printed = capsys.readouterr().out
    assert f"{folders[1]}, torch" in printed
    assert "ctranslate2" not in printed.lower()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--models", "a", "b"], "Give --input"),
        (["--models", "a", "--input", "t"], "--models a: give two or more different models"),
        (["--models", "a", "a", "--input", "t"], "--models a a: give two or more different models"),
        (["--models", "a", "b", "--input", "t", "--num_beams", "0"], r"--num_beams \[0\] must be"),
        (["--models", "a", "b", "--input", "t", "--backends", "jax"], "--backends jax: choose from torch"),
        (["--models", "a", "b", "--input", "t", "--sentences", "0"], "--sentences 0 must be at least 1"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(["models", *options])
