"""The exported folder translates text in CTranslate2 as the model does."""

import sys
from typing import get_args, get_type_hints

import pytest
from transformers import AutoTokenizer, T5Config

from vanilla_transformer import Translator
from vanilla_transformer.converters.to_ctranslate2 import Quantization, translate
from vanilla_transformer.scripts import export_ctranslate2


ctranslate2 = pytest.importorskip("ctranslate2")


def test_every_quantization_is_offered():
    assert get_args(get_type_hints(export_ctranslate2.ExportArguments)["quantization"]) == get_args(Quantization)


def test_the_exported_model_translates_text(model_folder, tmp_path, capsys):
    output = tmp_path / "out"
    export_ctranslate2.main(["--model", str(model_folder), "--output_dir", str(output), "--max_positions", "80"])
    assert "float32" in capsys.readouterr().out
    tokenizer = AutoTokenizer.from_pretrained(output)
    text = "The dog sleeps in the garden."
    translator = ctranslate2.Translator(str(output), intra_threads=1)
    (tokens,) = translate(translator, [tokenizer(text).tokens()], num_beams=1, max_new_tokens=9)
    expected = Translator.from_pretrained(model_folder)(text, num_beams=1, max_new_tokens=9)
    assert Translator.from_pretrained(output)(text, num_beams=1, max_new_tokens=9) == expected
    assert tokenizer.decode(tokenizer.convert_tokens_to_ids(tokens), skip_special_tokens=True) == expected


def test_without_the_engine_a_sentence_says_what_to_install(model_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(SystemExit, match=r"pip install ctranslate2"):
        export_ctranslate2.main(["--model", str(model_folder), "--output_dir", str(tmp_path / "out")])


def test_models_of_other_types_are_refused(tmp_path):
    T5Config().save_pretrained(tmp_path / "t5")
    with pytest.raises(SystemExit, match="takes models of type vanilla_transformer and marian, not 't5'"):
        export_ctranslate2.main(["--model", str(tmp_path / "t5"), "--output_dir", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_mistakes_get_a_sentence():
    with pytest.raises(SystemExit, match="--max_positions 0 must be at least 1"):
        export_ctranslate2.main(["--max_positions", "0"])
