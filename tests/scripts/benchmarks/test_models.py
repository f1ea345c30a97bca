"""Several models translate the same lines; the first is the reference."""

import shutil

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark


def test_speed_and_scores_of_all_models(text, model_folder, tmp_path, capsys, rows):
    first, second = str(model_folder), str(shutil.copytree(model_folder, tmp_path / "copy"))
    texts = ["--input", f"{text}.en", "--references", f"{text}.de", "--sentences", "3"]
    sizes = ["--rounds", "1", "--device", "cpu", "--num_beams", "2"]
    benchmark.main(["models", "--models", first, second, *texts, *sizes])
    printed = capsys.readouterr().out
    found = rows(printed, first, second, f"{first}, CTranslate2", f"{second}, CTranslate2")
    assert found[first][1:3] == ["1.00", "1.00-1.00"]
    assert found[first][3:] == found[second][3:]  # the same weights have the same BLEU and chrF
    assert float(found[second][1]) > 0
    assert "beam 2, 3 sentences" in printed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--models", "a", "b"], "Give --input"),
        (["--models", "a", "--input", "t"], "--models a: give two or more different models"),
        (["--models", "a", "a", "--input", "t"], "--models a a: give two or more different models"),
        (["--models", "a", "b", "--input", "t", "--num_beams", "0"], r"--num_beams \[0\] must be"),
        (["--models", "a", "b", "--input", "t", "--sentences", "0"], "--sentences 0 must be at least 1"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(["models", *options])
