"""All systems translate the same lines, from text to text."""

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark, mask_predict


def test_a_batch_has_that_many_lines_in_file_order():
    batches = []
    translated = mask_predict.in_batches(lambda lines: batches.append(lines) or lines, list("abcde"), 2)
    assert translated == list("abcde")
    assert batches == [["a", "b"], ["c", "d"], ["e"]]


def test_speed_and_scores_of_both_models(text, model_folder, mask_model_folder, capsys, rows):
    sizes = ["--sentences", "3", "--rounds", "1", "--device", "cpu", "--batch_sizes", "2"]
    models = ["--model", str(mask_model_folder), "--baseline", str(model_folder)]
    options = ["--iterations", "1", "2", "--length_candidates", "2"]
    texts = ["--input", f"{text}.en", "--references", f"{text}.de"]
    benchmark.main(["mask_predict", *models, *texts, *options, *sizes])
    printed = capsys.readouterr().out
    names = ["baseline, greedy", "baseline, beam 4", "baseline, CTranslate2 greedy", "baseline, CTranslate2 beam 4"]
    ours = [f"mask-predict, {number} iterations, 2 lengths" for number in (1, 2)]
    found = rows(printed, *names, *ours)
    assert found["baseline, greedy"][1:3] == ["1.00", "1.00-1.00"]
    assert all(float(row[-1]) >= 0 and float(row[-2]) >= 0 for row in found.values())
    assert "batch size 2, 3 sentences" in printed


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--model", "m", "--input", "t"], "Give --model and --baseline"),
        (["--model", "m", "--baseline", "b", "--input", "t", "--iterations", "0"], r"--iterations \[0\] must be"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(["mask_predict", *options])
