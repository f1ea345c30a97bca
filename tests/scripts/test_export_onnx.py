"""Mistakes of the command. `tests/vanilla_transformer/converters/test_to_onnx.py` exports and translates."""

import sys

import pytest

from vanilla_transformer.scripts import export_onnx


def test_without_the_engine_a_sentence_says_what_to_install(model_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(SystemExit, match=r"pip install 'vanilla-transformer\[onnx\]'"):
        export_onnx.main(["--model", str(model_folder), "--output_dir", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_else_is_not_overwritten(model_folder, tmp_path):
    pytest.importorskip("onnxscript")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit):
        export_onnx.main(["--model", str(model_folder), "--output_dir", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
