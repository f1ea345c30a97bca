"""A `Translator` that decodes in ONNX Runtime answers as the one in torch does, and says what the engine lacks."""

import json
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.converters.to_onnx import MANIFEST
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.scripts import export_onnx
from vanilla_transformer.training.evaluation.metrics import bleu


pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

ROOT = Path(__file__).parents[3]
TEXTS = ["A dog runs.", "Two men are standing on a ladder.", "A cat", "the cat and the dog sleep under a tree", ""]


def save_model(folder, **fields):
    torch.manual_seed(2)
    tokenizer = train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)
    sizes = {"vocab_size": 300, "d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "initializer_gain": 1.0}
    model = VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset("tiny", **{**sizes, **fields})
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # livelier than fresh weights
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model, and its export by the command."""
    root = tmp_path_factory.mktemp("onnx")
    save_model(root / "model")
    export_onnx.main(["--model", str(root / "model"), "--output_dir", str(root / "onnx")])
    return root / "model", root / "onnx"


@pytest.fixture(scope="module")
def translators(folders):
    model, exported = folders
    return Translator.from_pretrained(model, backend="torch"), Translator.from_pretrained(exported, backend="onnx")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_best": 3},
        {"n_best": 4, "length_penalty": 1.0, "penalty": "length"},
        {"num_beams": 1},
        {"prefix": "the dog"},
        {"no_repeat_ngram_size": 2, "min_new_tokens": 6},
        {"glossary": {"dog": "cat"}, "num_beams": 8},
    ],
)
def test_translations_and_scores_are_those_of_torch(translators, options):
    expected, found = (
        [item for row in translator.translate(TEXTS, max_new_tokens=12, **options) for item in row]
        for translator in translators
    )
    assert [item.text for item in found] == [item.text for item in expected]
    assert [item.score for item in found] == pytest.approx([item.score for item in expected], abs=1e-4)
    assert len({item.text for item in found}) > 3


def test_logits_are_those_of_torch(translators):
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 0, 0]])
    inputs = {"input_ids": source, "attention_mask": (source != 0).long(), "decoder_input_ids": source.flip(1)}
    expected, found = (translator.model(**inputs).logits for translator in translators)
    assert_close(found, expected, rtol=0, atol=1e-4)


def test_scores_of_given_translations_are_those_of_torch(translators):
    pairs = [("A cat", "the dog runs."), ("Two men", "a tree")]
    expected, found = ([pair.log_probability for pair in translator.score(pairs)] for translator in translators)
    assert found == pytest.approx(expected, abs=1e-4)


def test_threads_copies_and_forks_translate_the_same(translators):
    translator = translators[1]
    expected = translator(TEXTS, num_beams=2)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: translator(TEXTS, num_beams=2), range(2))) == [expected] * 2
    assert pickle.loads(pickle.dumps(translator))(TEXTS, num_beams=2) == expected
    child = os.fork()
    if child == 0:
        os._exit(0 if translator(TEXTS, num_beams=2) == expected else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_what_the_graphs_lack_is_refused(translators, folders):
    translator = translators[1]
    with pytest.raises(ValueError, match="ONNX Runtime does not sample"):
        translator("A cat", sample=True)
    with pytest.raises(ValueError, match="does not support attention=True"):
        translator("A cat", attention=True)
    with pytest.raises(ValueError, match=r"does not support attend\(\)"):
        translator.attend("A cat", "a dog")
    with pytest.raises(ValueError, match="ONNX Runtime can't decode an ensemble"):
        Translator.from_pretrained([folders[1], folders[1]], backend="onnx")
    with pytest.raises(ValueError, match="Graphs are not saved"):
        translator.model.save_pretrained("anywhere")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"quantization": "int8"}, "was exported with quantization='float32', not 'int8'"),
        ({"quantization": "int4"}, "quantization='int4' is unknown: choose one of float32, int8"),
        ({"dtype": torch.float16}, "dtype=torch.float16 is for torch"),
        ({"device_map": "auto"}, "device_map='auto' is for torch"),
    ],
)
def test_other_options_are_refused(folders, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Translator.from_pretrained(folders[1], backend="onnx", **options)


def test_a_folder_that_is_no_whole_export_is_refused(folders, tmp_path):
    model, exported = folders
    with pytest.raises(ValueError, match=r"has no onnx.json, so it is no export to ONNX: run vanilla convert onnx"):
        Translator.from_pretrained(model, backend="onnx")
    damaged = tmp_path / "damaged"
    shutil.copytree(exported, damaged)
    (damaged / "decoder.onnx").write_bytes((exported / "encoder.onnx").read_bytes())
    with pytest.raises(ValueError, match=r"decoder.onnx is not the file that was exported \(SHA-256\)"):
        Translator.from_pretrained(damaged, backend="onnx")
    manifest = json.loads((damaged / MANIFEST).read_text())
    (damaged / MANIFEST).write_text(json.dumps({**manifest, "format": 0}))
    with pytest.raises(ValueError, match="has format 0, not 1: export the model again"):
        Translator.from_pretrained(damaged, backend="onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"norm_placement": "pre", "position_encoding": "learned", "d_k": 6, "output_bias": True},
        {"position_encoding": "none", "activation_function": "gelu", "tie_word_embeddings": False},
    ],
)
def test_other_architectures_are_exported_too(tmp_path, fields):
    save_model(tmp_path, **fields)
    torch_translator = Translator.from_pretrained(tmp_path, backend="torch")
    onnx = Translator(torch_translator.model, torch_translator.tokenizer, backend="onnx")
    assert onnx(TEXTS, max_new_tokens=12) == torch_translator(TEXTS, max_new_tokens=12)


@pytest.mark.slow
def test_eight_bits_translate_as_well(tmp_path):
    """The bundled model, whose weights are large enough to overflow in arithmetic that is not exact."""
    bundled, captions = ROOT / "model_cards" / "multi30k-en-de-tiny", ROOT / "tests" / "data"
    export_onnx.main(["--model", str(bundled), "--output_dir", str(tmp_path / "int8"), "--quantization", "int8"])
    int8 = Translator.from_pretrained(tmp_path / "int8", backend="onnx", quantization="int8")
    sources, references = ((captions / f"captions.{side}").read_text("utf-8").splitlines() for side in ("en", "de"))
    float32 = Translator.from_pretrained(bundled, device="cpu")(sources)
    found = int8(sources)
    assert (tmp_path / "int8" / "decoder.onnx").stat().st_size < bundled.joinpath("model.safetensors").stat().st_size
    assert bleu(found, references).score == pytest.approx(bleu(float32, references).score, abs=4.0)
    assert sum(ours == theirs for ours, theirs in zip(found, float32, strict=True)) >= 35  # of 50
