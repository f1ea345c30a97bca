"""vanilla convert fairseq: a checkpoint, its dictionary and its BPE codes become a folder that translates."""

import argparse
import re

import pytest
import torch
from transformers import AutoTokenizer

from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.converters.from_and_to_marian import LAYER_NAMES, rename
from vanilla_transformer.scripts.convert_fairseq import main


CODES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\nn e\nne w\n"
TOKENS = ["low", "lo@@", "new@@", "er", "e@@", "n@@", "w@@", "w", ".", "a", "b@@", "madeupword0000"]


@pytest.fixture
def files(tmp_path):
    """The three files of a fairseq model, and the model with the same weights."""
    (tmp_path / "dict.en.txt").write_text("".join(f"{token} 1\n" for token in TOKENS))
    (tmp_path / "codes").write_text(CODES)
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    config = VanillaTransformerConfig.from_preset("tiny", vocab_size=4 + len(TOKENS), **sizes)
    names = {ours: theirs for theirs, ours in LAYER_NAMES.items()}
    state = {
        rename(re.sub(r"^model\.", "", name), names): tensor.clone()
        for name, tensor in VanillaTransformerForConditionalGeneration(config).state_dict().items()
        if name != "lm_head.weight"
    }
    options = {
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in [("embed_dim", 16), ("ffn_embed_dim", 32), ("layers", 1), ("attention_heads", 4)]
    }
    stored = argparse.Namespace(arch="transformer", share_all_embeddings=True, **options)
    torch.save({"args": stored, "model": state}, tmp_path / "model.pt")
    words = [
        "--checkpoint",
        tmp_path / "model.pt",
        "--dict",
        tmp_path / "dict.en.txt",
        "--bpe_codes",
        tmp_path / "codes",
    ]
    return [*map(str, words), "--output_dir", str(tmp_path / "converted")]


def test_the_folder_translates_and_its_tokenizer_is_subword_nmts(files, tmp_path, capsys):
    main([*files, "--source_lang", "en", "--target_lang", "de"])
    assert "en to de" in capsys.readouterr().out
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "converted")
    # subword-nmt splits "low newer lower." with these codes into: low new@@ er lo@@ w@@ er .
    assert tokenizer.tokenize("low newer lower.") == ["low</w>", "new", "er</w>", "lo", "w", "er</w>", ".</w>"]
    ids = tokenizer("low newer.")["input_ids"]
    assert ids == [4, 6, 7, 12, 2]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "low newer."
    translator = Translator.from_pretrained(tmp_path / "converted")
    assert translator.target_tokenizer is not translator.tokenizer
    assert isinstance(translator("low newer."), str)


def test_mistakes_are_sentences(files, tmp_path):
    with pytest.raises(SystemExit, match="does not name its languages: give --source_lang and --target_lang"):
        main(files)
    languages = ["--source_lang", "en", "--target_lang", "de"]
    (tmp_path / "codes").write_text("#version: 0.1\na b\n")
    with pytest.raises(SystemExit, match=r"only codes of version 0\.2"):
        main([*files, *languages])
    (tmp_path / "codes").write_text("a\n")
    with pytest.raises(SystemExit, match="line 1: 'a' is not a pair of subwords"):
        main([*files, *languages])
    assert not (tmp_path / "converted").exists()
