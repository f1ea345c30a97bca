"""A whole model is loaded. Anything else gets one sentence that names the folder and the remedy."""

import json

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from vanilla_transformer.loading import LOADING_ERRORS, find_device, load_config, load_model, reason_of


SENTENCE = r"^{} can't be loaded \(.+\): give a folder with a model and its tokenizer, or a name on the Hub\.$"


@pytest.fixture
def model(make_model):
    return make_model()


@pytest.fixture
def folder(model, tmp_path):
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_model_is_loaded_in_evaluation_mode_and_in_its_type(model, folder):
    loaded = load_model(folder)
    assert not loaded.training
    assert all(torch.equal(*pair) for pair in zip(loaded.parameters(), model.parameters(), strict=True))
    model.half().save_pretrained(folder)
    assert load_model(folder).dtype == torch.float16
    assert load_model(folder, dtype=torch.float32).dtype == torch.float32
    assert load_config(folder).model_type == "vanilla_transformer"


def test_any_encoder_decoder_is_loaded(tmp_path):
    sizes = {"vocab_size": 23, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "pad_token_id": 22}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_start_token_id": 22}
    MarianMTModel(MarianConfig(**sizes, **heads)).save_pretrained(tmp_path)
    assert load_model(tmp_path).config.model_type == "marian"


def another_width(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "encoder_ffn_dim": 64}))


def no_json(folder):
    (folder / "config.json").write_text("{")


def unknown_type(folder):
    (folder / "config.json").write_text('{"model_type": "nothing"}')


def no_weights(folder):
    (folder / "model.safetensors").unlink()


def half_the_weights(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def a_pickle(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"weights": json.JSONDecoder}, folder / "pytorch_model.bin")


def an_empty_file(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").touch()


@pytest.mark.parametrize(
    "spoil", [another_width, no_json, unknown_type, no_weights, half_the_weights, a_pickle, an_empty_file]
)
def test_unusable_files_get_one_sentence(folder, spoil):
    spoil(folder)
    with pytest.raises(ValueError, match=SENTENCE.format(folder)) as error:
        load_model(folder)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_not_there_gets_the_same_sentence(tmp_path):
    for load in (load_model, load_config):
        with pytest.raises(ValueError, match=SENTENCE.format(tmp_path / "missing")):
            load(tmp_path / "missing")


def test_missing_weights_are_not_invented(folder):
    model = load_model(folder)
    state = model.state_dict()
    del state["model.encoder.layers.1.feed_forward.fc1.bias"]
    model.save_pretrained(folder, state_dict=state)
    with pytest.raises(ValueError, match=r"model has no weights model\.encoder\.layers\.1\.feed_forward\.fc1\.bias:"):
        load_model(folder)


def test_the_reason_is_the_first_line():
    assert reason_of(OSError("It is not there.\nLong explanation.")) == "It is not there"
    assert reason_of(EOFError()) == "a file is empty or truncated"
    assert all(issubclass(error, Exception) for error in LOADING_ERRORS)


def test_devices():
    assert find_device("cpu") == torch.device("cpu")
    assert find_device(None).type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match="device='toaster' is unknown to torch"):
        find_device("toaster")
