"""All systems translate the same lines with the same weights."""

import pytest
import torch

from vanilla_transformer.scripts.benchmarks import benchmark, decode


def test_all_systems_with_the_same_weights_write_the_same(text):
    """In float32 and greedily; beams of MarianMT's `generate` are judged by another length penalty."""
    arguments = {"input": [f"{text}.en"], "preset": "tiny", "vocab_size": 270, "length": 6, "sentences": 9}
    options = decode.DecodeBenchmarkArguments(**arguments, batch_size=4, engines=["ctranslate2"])
    lines, references = decode.read_text(options)
    assert len(lines) == 9
    assert not references
    decoders = decode.make_decoders(options, lines, torch.device("cpu"))
    with torch.no_grad():
        for parameter in decoders.model.parameters():
            parameter.mul_(2.0)  # so that texts have different translations
    translations = {name: system() for name, system in decoders.systems(beams=1).items() if "int8" not in name}
    assert set(translations) >= {
        "MarianMT generate",
        "MarianMT, beam_search",
        "this model, stock generate",
        "this model, beam_search",
        "Translator",
        "plain CTranslate2 script",
        "Translator, CTranslate2",
    }
    expected = translations["MarianMT generate"]
    assert len(set(expected)) > 1
    assert all(texts == expected for texts in translations.values())
    assert decoders.tokens_in(expected) == 9 * 6


def test_decoding_is_measured_from_text_to_text(text, model_folder, capsys, rows):
    sizes = ["--input", f"{text}.en", "--sentences", "5", "--rounds", "1", "--device", "cpu"]
    sizes += ["--engines", "ctranslate2"]
    model = ["decode", "--model", str(model_folder), "--references", f"{text}.de", "--num_beams", "2"]
    benchmark.main([*model, *sizes])
    printed = capsys.readouterr().out
    systems = ["MarianMT generate", "this model, beam_search", "Translator"]
    found = rows(printed, *systems, "Translator, CTranslate2", "Translator, CTranslate2 int8")
    assert found["MarianMT generate"][2:4] == ["1.00", "1.00-1.00"]
    assert all(float(row[-1]) >= 0 for row in found.values())  # BLEU
    assert "BLEU: nrefs:1" in printed
    assert str(model_folder) in printed
    with pytest.raises(SystemExit, match="There are 80 lines of input but 240 references"):
        benchmark.main([*model, *sizes, "--references", *[f"{text}.de"] * 3])


def test_equal_work_has_the_same_number_of_steps_for_all(text, capsys, rows):
    sizes = [
        "--input",
        f"{text}.en",
        "--rounds",
        "1",
        "--length",
        "3",
        "--batch_size",
        "4",
        "--engines",
        "ctranslate2",
    ]
    benchmark.main(["decode", "--preset", "tiny", "--vocab_size", "270", "--device", "cpu", "--equal_work", *sizes])
    printed = capsys.readouterr().out
    assert "beam 4, 4 sentences" in printed
    assert "no translation ends before" in printed
    assert rows(printed, "MarianMT generate", "this model, beam_search", "CTranslate2", "CTranslate2 int8")


def test_hypotheses_that_end_are_not_equal_work(text):
    arguments = {"input": [f"{text}.en"], "preset": "tiny", "vocab_size": 270, "length": 3, "engines": []}
    options = decode.DecodeBenchmarkArguments(**arguments)
    lines, _ = decode.read_text(options)
    work = decode.equal_work(decode.make_decoders(options, lines, torch.device("cpu")), lines[:2])
    work.require_equal(system() for system in work.systems(2, "MarianMT").values())
    with torch.no_grad():
        work.model.lm_head.weight[work.model.config.eos_token_id].fill_(10.0)
    with pytest.raises(RuntimeError, match="does not have 3 tokens: the work was not equal"):
        work.require_equal(system() for system in work.systems(2, "MarianMT").values())


def test_an_engine_that_is_not_there_is_said_to_be_missing(text, capsys, monkeypatch):
    monkeypatch.setattr(decode, "find_spec", lambda name: None)
    sizes = ["--input", f"{text}.en", "--sentences", "2", "--rounds", "1", "--num_beams", "1", "--length", "2"]
    benchmark.main(["decode", "--preset", "tiny", "--vocab_size", "270", "--device", "cpu", *sizes])
    printed = capsys.readouterr().out
    assert "CTranslate2 was not measured: not installed (ctranslate2)." in printed
    assert "Translator, CTranslate2" not in printed


def test_text_without_a_line_is_refused(tmp_path):
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(SystemExit, match="has no text: give one sentence per line"):
        benchmark.main(["decode", "--preset", "tiny", "--input", str(tmp_path / "empty")])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["decode", "--preset", "tiny"], "Give --input"),
        (["decode", "--input", "a", "--model", "m", "--equal_work"], "--equal_work measures random weights"),
        (["decode", "--input", "a", "--preset", "tiny", "--engines", "marian"], "--engines marian is unknown"),
        (["decode", "--input", "text"], "Give either --model or --preset"),
        (["decode", "--input", "text", "--model", "m", "--preset", "tiny"], "Give either --model or --preset"),
        (["decode", "--input", "a", "--preset", "tiny", "--references", "b"], "random weights have no useful BLEU"),
        (["decode", "--input", "text", "--preset", "tiny", "--sentences", "0"], "--sentences 0 must be at least 1"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(options)
