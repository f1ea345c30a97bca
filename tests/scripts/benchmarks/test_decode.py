"""All systems translate the same lines with the same weights."""

import pytest
import torch

from vanilla_transformer.scripts.benchmarks import benchmark, decode


def test_all_systems_with_the_same_weights_write_the_same(text):
    """In float32 and greedily; beams of MarianMT's `generate` are judged by another length penalty."""
    arguments = {"input": [f"{text}.en"], "preset": "tiny", "vocab_size": 270, "length": 6, "sentences": 9}
    options = decode.DecodeBenchmarkArguments(**arguments, batch_size=4)
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
        "Translator, CTranslate2",
    }
    expected = translations["MarianMT generate"]
    assert len(set(expected)) > 1
    assert all(texts == expected for texts in translations.values())
    assert decoders.tokens_in(expected) == 9 * 6


def test_decoding_is_measured_from_text_to_text(text, model_folder, capsys, rows):
    sizes = ["--input", f"{text}.en", "--sentences", "5", "--rounds", "1", "--device", "cpu"]
    model = ["decode", "--model", str(model_folder), "--references", f"{text}.de", "--num_beams", "2"]
    benchmark.main([*model, *sizes])
    printed = capsys.readouterr().out
    systems = ["MarianMT generate", "this model, beam_search", "Translator", "Translator int8"]
    found = rows(printed, *systems, "Translator, CTranslate2", "Translator, CTranslate2 int8")
    assert found["MarianMT generate"][2:4] == ["1.00", "1.00-1.00"]
    assert all(float(row[-1]) >= 0 for row in found.values())  # BLEU
    assert "BLEU: nrefs:1" in printed
    assert str(model_folder) in printed
    with pytest.raises(SystemExit, match="There are 80 lines of input but 240 references"):
        benchmark.main([*model, *sizes, "--references", *[f"{text}.de"] * 3])


def test_an_engine_that_is_not_there_is_said_to_be_missing(text, capsys, monkeypatch):
    monkeypatch.setattr(decode, "find_spec", lambda name: None)
    sizes = ["--input", f"{text}.en", "--sentences", "2", "--rounds", "1", "--num_beams", "1", "--length", "2"]
    benchmark.main(["decode", "--preset", "tiny", "--vocab_size", "270", "--device", "cpu", *sizes])
    printed = capsys.readouterr().out
    assert "CTranslate2 was not measured: not installed (ctranslate2)." in printed
    assert "ONNX Runtime was not measured: not installed (onnx, onnxscript, onnxruntime)." in printed
    assert "Translator, CTranslate2" not in printed


def test_text_without_a_line_is_refused(tmp_path):
    (tmp_path / "empty").write_text("\n \n")
    with pytest.raises(SystemExit, match="has no text: give one sentence per line"):
        benchmark.main(["decode", "--preset", "tiny", "--input", str(tmp_path / "empty")])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["decode", "--preset", "tiny"], "Give --input"),
        (["decode", "--input", "text"], "Give either --model or --preset"),
        (["decode", "--input", "text", "--model", "m", "--preset", "tiny"], "Give either --model or --preset"),
        (["decode", "--input", "a", "--preset", "tiny", "--references", "b"], "random weights have no useful BLEU"),
        (["decode", "--input", "text", "--preset", "tiny", "--sentences", "0"], "--sentences 0 must be at least 1"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(options)
