"""Conversion from folder to folder: weights bit by bit, and the files of the tokenizer."""

import json
import os

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.small_models import TOKENIZER_FILES, assert_same_weights, opus_marian, write_opus_folder
from vanilla_transformer import Translator
from vanilla_transformer.converters.from_and_to_marian import to_marian
from vanilla_transformer.hub.languages import languages_of, load_languages
from vanilla_transformer.scripts import convert_marian


@pytest.fixture
def opus_folder(tmp_path):
    """A MarianMT folder with files of a tokenizer."""
    return write_opus_folder(tmp_path / "opus")


def convert(*words) -> None:
    convert_marian.main([str(word) for word in words])


def test_models_are_converted_there_and_back_and_tokenizer_files_are_copied(opus_folder, tmp_path, capsys):
    convert("--model", opus_folder, "--output_dir", tmp_path / "ours")
    convert("--model", tmp_path / "ours", "--to", "marian", "--output_dir", tmp_path / "back")
    assert "logits differ by at most" in capsys.readouterr().out
    for folder in (tmp_path / "ours", tmp_path / "back"):
        assert {name: (folder / name).read_bytes() for name in TOKENIZER_FILES} == TOKENIZER_FILES
        other_files = {path.name for path in folder.iterdir() if path.suffix != ".py"} - TOKENIZER_FILES.keys()
        assert other_files == {"config.json", "generation_config.json", "model.safetensors"}
    theirs, back = (MarianMTModel.from_pretrained(folder) for folder in (opus_folder, tmp_path / "back"))
    assert_same_weights(back, theirs)
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    assert ours.config.model_type == "vanilla_transformer"
    assert languages_of(ours.config) == languages_of(back.config) == ("en", "de")
    assert ours.generation_config.bad_words_ids == back.generation_config.bad_words_ids == [[22]]


def test_the_bundled_model_is_found_by_its_name(tmp_path):
    convert("--model", "multi30k-en-de-tiny", "--to", "marian", "--output_dir", tmp_path / "marian")
    assert (tmp_path / "marian" / "tokenizer.json").is_file()
    assert load_languages(tmp_path / "marian") == ("en", "de")


def test_an_old_checkpoint_of_two_files_is_read(opus_folder, tmp_path):
    """pytorch_model.bin in float16 with its table of positions, and generation settings in config.json."""
    theirs = MarianMTModel.from_pretrained(opus_folder)
    torch.save(theirs.half().state_dict(), opus_folder / "pytorch_model.bin")
    settings = json.loads((opus_folder / "generation_config.json").read_text())
    config = {**json.loads((opus_folder / "config.json").read_text()), **settings, "static_position_embeddings": True}
    del config["dtype"], config["transformers_version"]
    (opus_folder / "config.json").write_text(json.dumps(config))
    for name in ("generation_config.json", "model.safetensors"):
        (opus_folder / name).unlink()

    convert("--model", opus_folder, "--output_dir", tmp_path / "ours")
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours")
    assert ours.dtype == torch.float16
    assert_same_weights(to_marian(ours), theirs)
    assert (ours.generation_config.num_beams, ours.generation_config.forced_eos_token_id) == (3, 0)
    convert("--model", opus_folder, "--output_dir", tmp_path / "wide", "--dtype", "float32")
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "wide").dtype == torch.float32


class Harm:
    def __reduce__(self):
        return os._exit, (1,)  # ends this test run if it is ever called


def test_a_pickle_with_more_than_tensors_is_refused(opus_folder, tmp_path):
    (opus_folder / "model.safetensors").unlink()
    config = json.loads((opus_folder / "config.json").read_text())
    del config["dtype"]  # so that the weights are also looked at for their type
    (opus_folder / "config.json").write_text(json.dumps(config))
    torch.save({"model.shared.weight": Harm()}, opus_folder / "pytorch_model.bin")
    message = r"opus can't be loaded \(its weights are a pickle with more than tensors, .* get them as safetensors"
    with pytest.raises(SystemExit, match=message):
        convert("--model", opus_folder, "--output_dir", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_other_models_are_refused(opus_folder, tmp_path):
    sizes = {"vocab_size": 23, "d_model": 16, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    T5ForConditionalGeneration(T5Config(**sizes)).save_pretrained(tmp_path / "t5")
    with pytest.raises(SystemExit, match=r"t5 is a model of type 't5': give one of type 'marian'"):
        convert("--model", tmp_path / "t5", "--output_dir", tmp_path / "ours")
    with pytest.raises(SystemExit, match=r"opus is a model of type 'marian': give one of type 'vanilla_transformer'"):
        convert("--model", opus_folder, "--to", "marian", "--output_dir", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"nowhere can't be loaded \(.+\): give a folder with a model"):
        convert("--model", tmp_path / "nowhere", "--output_dir", tmp_path / "ours")


def test_nothing_is_replaced_unasked(opus_folder):
    with pytest.raises(SystemExit, match="is already there"):
        convert("--model", opus_folder, "--output_dir", opus_folder)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_marian_tokenizer_still_works(tmp_path):
    """Both folders tokenise and translate alike, though no file names the tokenizer class. Needs sentencepiece."""
    sentencepiece = pytest.importorskip("sentencepiece")
    texts = ["The cat sleeps.", "A dog runs in the garden.", "Ein Hund läuft im Garten.", "Die Katze schläft."]
    folder, model = tmp_path / "opus", tmp_path / "model"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_prefix=str(model), vocab_size=38, minloglevel=3
    )
    processor = sentencepiece.SentencePieceProcessor(f"{model}.model")
    names = [processor.IdToPiece(index) for index in range(len(processor))]
    tokens = ["</s>", *(name for name in names if name not in ("<s>", "</s>")), "<pad>"]
    ids = {"pad_token_id": len(tokens) - 1, "decoder_start_token_id": len(tokens) - 1}
    theirs = opus_marian(vocab_size=len(tokens), max_position_embeddings=128, **ids)
    theirs.generation_config.bad_words_ids = [[len(tokens) - 1]]
    theirs.save_pretrained(folder)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes((tmp_path / "model.model").read_bytes())
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (folder / "tokenizer_config.json").write_text('{"source_lang": "en", "target_lang": "de"}')

    convert("--model", folder, "--output_dir", tmp_path / "ours")
    tokenizers = [AutoTokenizer.from_pretrained(path) for path in (folder, tmp_path / "ours")]
    assert [type(tokenizer).__name__ for tokenizer in tokenizers] == ["MarianTokenizer"] * 2
    assert tokenizers[0](texts)["input_ids"] == tokenizers[1](texts)["input_ids"]
    expected, translations = (
        Translator.from_pretrained(path)(texts, no_repeat_ngram_size=1) for path in (folder, tmp_path / "ours")
    )
    assert translations == expected
    assert len(set(translations)) > 1
