"""A whole model is loaded. Anything else gets one sentence that names the folder and the remedy."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    initialization,
    pipeline,
)

from tests.overlapping_loads import overlapping_loads
from tests.remote_code import spread
from tests.small_models import assert_same_weights, small_marian
from vanilla_transformer import Translator, find_model
from vanilla_transformer.converters.to_ctranslate2 import export
from vanilla_transformer.hub.loading import (
    LOADING_ERRORS,
    find_device,
    load_config,
    load_generation_config,
    load_model,
    load_tokenizers,
    read_object,
    reason_of,
    require_finite,
)
from vanilla_transformer.hub.saved_files import CAPTIONS, EVERYDAY


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
    small_marian().save_pretrained(tmp_path)
    assert load_model(tmp_path).config.model_type == "marian"


def test_a_path_that_is_not_there_is_named_as_such(tmp_path):
    """The library would say what a name on the Hub must look like."""
    missing = tmp_path / "run" / "model"
    for load in (load_model, load_config, load_tokenizers):
        with pytest.raises(ValueError, match=rf"^{missing} can't be loaded \(there is no such folder\): give"):
            load(str(missing))


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


def a_list(folder):
    (folder / "config.json").write_text("[1, 2]")


def deep_json(folder):
    (folder / "config.json").write_text("[" * 100_000)


def a_list_as_index(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("[]")


@pytest.mark.parametrize(
    "spoil",
    [
        *(another_width, no_json, unknown_type, no_weights, half_the_weights, a_pickle, an_empty_file),
        *(a_list, deep_json, a_list_as_index),
    ],
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


def test_a_refused_field_says_why_and_a_run_names_its_model(folder, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folder, run / "model")
    with pytest.raises(ValueError, match=rf"{run} can't be loaded .*: did you mean {run / 'model'}\?"):
        load_model(run)
    config = json.loads((run / "model" / "config.json").read_text())
    (run / "model" / "config.json").write_text(json.dumps({**config, "score_function": "scaled_doot"}))
    with pytest.raises(ValueError, match=r"can't be loaded \(.*scaled_doot"):
        load_model(run / "model")


def test_missing_weights_are_not_invented(folder):
    model = load_model(folder)
    state = model.state_dict()
    del state["model.encoder.layers.1.feed_forward.fc1.bias"]
    model.save_pretrained(folder, state_dict=state)
    with pytest.raises(ValueError, match=r"model has no weights model\.encoder\.layers\.1\.feed_forward\.fc1\.bias:"):
        load_model(folder)


@pytest.mark.parametrize("max_shard_size", ["5GB", "10KB"])
def test_a_config_with_more_layers_than_there_are_weights_builds_no_model(model, folder, max_shard_size):
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    assert (folder / "model.safetensors.index.json").is_file() == (max_shard_size == "10KB")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "decoder_layers": 1_000_000}))
    with pytest.raises(ValueError, match=r"model has decoder_layers=1000000 in config.json, but its weight file has"):
        load_model(folder)


@pytest.mark.parametrize("max_shard_size", ["5GB", "10KB"])
@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.bool, torch.int64])
def test_whole_numbers_do_not_become_weights(model, folder, kind, max_shard_size):
    state = model.state_dict()
    state["model.encoder.layers.1.feed_forward.fc1.bias"] = torch.ones_like(
        state["model.encoder.layers.1.feed_forward.fc1.bias"], dtype=kind
    )
    model.save_pretrained(folder, state_dict=state, max_shard_size=max_shard_size)
    with pytest.raises(ValueError, match=r"stores model\.encoder\.layers\.1\.feed_forward\.fc1\.bias as [IUB]"):
        load_model(folder)


def test_the_auto_classes_load_a_bundled_model_by_its_path():
    path = find_model(CAPTIONS)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(path), AutoTokenizer.from_pretrained(path)
    outputs = model.generate(**tokenizer("A dog runs.", return_tensors="pt"))
    translation = Translator.from_pretrained(CAPTIONS)("A dog runs.")
    assert tokenizer.decode(outputs[0], skip_special_tokens=True) == translation
    assert pipeline("vanilla-translation", model=str(path))("A dog runs.")["translation_text"] == translation


def test_the_reason_is_the_first_line():
    assert reason_of(OSError("It is not there.\nLong explanation.")) == "It is not there"
    assert reason_of(EOFError()) == "a file is empty or truncated"
    assert all(issubclass(error, Exception) for error in LOADING_ERRORS)


@pytest.mark.parametrize(
    ("accelerator", "message"), [(None, "sees no accelerator. Give cpu"), ("mps", "sees no cuda, only mps. Give mps")]
)
def test_devices(monkeypatch, accelerator, message):
    found = None if accelerator is None else torch.device(accelerator)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: found)
    assert find_device("cpu") == torch.device("cpu")
    assert find_device(None).type == (accelerator or "cpu")
    with pytest.raises(ValueError, match=message):
        find_device("cuda:1")
    with pytest.raises(ValueError, match="device='toaster' is unknown to torch"):
        find_device("toaster")


# --- decoding settings ---


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"generation_config\.json is not valid JSON \(.+\): restore or download it again"),
        ('{"num_beams": 5, "leng', r"is not valid JSON"),
        ("[1]", r"generation_config\.json holds a JSON list, not an object"),
        ("\x00\x00", r"is not valid JSON"),
        ('{"num_beams": "five"}', r"generation_config\.json: num_beams='five' must be a whole number"),
        ('{"length_penalty": true, "num_beams": 0}', r"generation_config\.json: num_beams=0 must be"),
    ],
)
def test_decoding_settings_that_can_not_be_read_are_an_error(model, folder, content, message):
    (folder / "generation_config.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        load_model(folder)
    with pytest.raises(ValueError, match=message):
        load_generation_config(folder, model.config)


def test_a_model_may_have_no_decoding_settings(model, folder):
    (folder / "generation_config.json").unlink()
    loaded = load_model(folder)
    found = load_generation_config(folder, model.config)
    assert found.eos_token_id == loaded.generation_config.eos_token_id == model.config.eos_token_id


def test_an_object_is_read_and_anything_else_is_named(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read_object(path) == {"a": 1}
    for content in (b"", b"3", b"[]", b"\xff", b"{" * 100_000):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.json (is not valid JSON|holds a JSON \w+, not an object)"):
            read_object(path)


# --- weights that are not numbers ---


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_numbers_are_refused_everywhere(model, folder, number):
    with torch.no_grad():
        model.model.encoder.layers[1].feed_forward.fc1.bias[3] = number
    model.save_pretrained(folder)
    message = (
        r"has weights that are not numbers \(NaN or infinity\) in model\.encoder\.layers\.1\.feed_forward\.fc1\.bias"
    )
    with pytest.raises(ValueError, match=message):
        load_model(folder)
    with pytest.raises(ValueError, match=message):
        export(model, None, folder)


def test_large_weights_are_numbers(model):
    with torch.no_grad():
        model.lm_head.weight.fill_(3e38)  # their sum is infinite
    require_finite(model)


# --- code of a folder ---


def test_nobody_is_asked_whether_to_run_the_code_of_a_folder(folder, tmp_path, monkeypatch):
    spread(folder, tmp_path / "ran")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    for load in (load_model, load_config, load_tokenizers):
        with pytest.raises(ValueError, match=r"contains custom code which must be executed"):
            load(folder)
    assert not (tmp_path / "ran").exists()
    load_config(folder, trust_remote_code=True)
    assert (tmp_path / "ran").exists()


def test_one_model_of_a_family_is_needed_where_only_one_fits():
    with pytest.raises(ValueError, match=r"several models.*give everyday-en-de, .* or everyday-to-en"):
        find_model(EVERYDAY)


# --- types and threads ---


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", ["vanilla", "rotary", "marian", "t5"])
def test_a_type_is_that_of_from_pretrained_in_every_tensor(make, dtype, make_model, tmp_path):
    models = {
        "vanilla": make_model,
        "rotary": lambda: make_model(position_encoding="rotary"),
        "marian": small_marian,
        "t5": lambda: T5ForConditionalGeneration(T5Config(vocab_size=23, d_model=16, d_kv=4, d_ff=32, num_layers=1)),
    }
    models[make]().save_pretrained(tmp_path / "float32")
    models[make]().to(dtype).save_pretrained(tmp_path / "half")
    for folder, options in (("float32", {"dtype": dtype}), ("half", {}), ("half", {"dtype": "auto"})):
        expected = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / folder, **options)
        loaded = load_model(tmp_path / folder, **options)
        assert_same_weights(loaded, expected)
        for (name, buffer), (_, other) in zip(loaded.named_buffers(), expected.named_buffers(), strict=True):
            assert buffer.dtype == other.dtype, name
            assert torch.equal(buffer, other), name
        assert loaded.config.to_dict() == expected.config.to_dict()


def test_the_default_type_of_other_threads_stays_while_a_model_is_loaded(make_model, tmp_path, monkeypatch):
    make_model().to(torch.bfloat16).save_pretrained(tmp_path)
    types = []
    post_init = PreTrainedModel.post_init
    monkeypatch.setattr(
        PreTrainedModel, "post_init", lambda model: (types.append(torch.get_default_dtype()), post_init(model))
    )
    assert load_model(tmp_path).dtype == torch.bfloat16
    assert set(types) == {torch.float32}


def test_two_threads_load_one_after_the_other(folder, monkeypatch):
    """`no_tie_weights` replaces a method for the whole process. Where two overlap, it stays replaced."""
    original = PreTrainedModel.tie_weights
    monkeypatch.setattr(initialization, "no_tie_weights", overlapping_loads())
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(load_model, [folder, folder]))
        assert PreTrainedModel.tie_weights is original
    finally:
        PreTrainedModel.tie_weights = original
