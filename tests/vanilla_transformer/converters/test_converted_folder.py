"""A converted folder is a model by itself. Those in the user's cache follow the model that they were made from."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from tests.small_models import lively, opus_marian
from tests.vanilla_transformer.engines.test_ctranslate2_engine import ALIKE, TEXTS, model_of
from vanilla_transformer import Translator
from vanilla_transformer.converters import converted_folder
from vanilla_transformer.converters.converted_folder import convert, kept_folder, user_cache
from vanilla_transformer.hub.saved_files import CAPTIONS, RECORD, find_model, read_card, read_record
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET, save_tokenizers, train_tokenizer
from vanilla_transformer.scripts import calibrate


pytest.importorskip("ctranslate2")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)


@pytest.fixture
def saved(tokenizer, tmp_path) -> Path:
    model_of().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def load(folder, **options) -> Translator:
    return Translator.from_pretrained(folder, backend="ctranslate2", device="cpu", **options)


def expected_of(folder) -> list[str]:
    return Translator.from_pretrained(folder, backend="torch", device="cpu")(TEXTS, **ALIKE)


def change(path: Path, **fields) -> None:
    content = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in content.items() if value != "gone"}))


@pytest.fixture
def no_conversion(monkeypatch):
    return lambda: monkeypatch.setattr(converted_folder, "convert", lambda *_, **__: pytest.fail("converted again"))


# --- named directly ---


@pytest.mark.parametrize("backend", ["auto", "ctranslate2"])
def test_a_folder_translates_where_there_is_nothing_else(saved, tmp_path, backend, no_conversion):
    expected = expected_of(saved)
    (saved / "README.md").write_text("---\ndescription: A test\nwidget:\n- text: A dog\n---\n")
    folder = tmp_path / "converted"
    folder.mkdir()
    convert(saved, folder)
    shutil.rmtree(saved)
    no_conversion()
    translator = Translator.from_pretrained(folder, backend=backend)
    assert translator(TEXTS, **ALIKE) == expected
    assert read_card(folder) == {"description": "A test", "examples": ["A dog"]}
    assert list(tmp_path.glob("home/**/model.bin")) == []
    with pytest.raises(ValueError, match="was converted with quantization='float32', not 'int8'"):
        Translator.from_pretrained(folder, backend=backend, quantization="int8")
    with pytest.raises(ValueError, match="is converted for CTranslate2, and torch can't load it"):
        Translator.from_pretrained(folder, backend="torch")
    with pytest.raises(ValueError, match="is converted already"):
        convert(folder, tmp_path)


def test_its_limit_and_its_settings_come_along(saved, tmp_path):
    change(saved / "generation_config.json", num_beams=3, length_penalty=0.3, search="vanilla_beam_search")
    (tmp_path / "converted").mkdir()
    convert(saved, tmp_path / "converted", max_positions=20)
    translator = Translator.from_pretrained(tmp_path / "converted")
    assert translator.backend.longest_input == 20
    assert (translator.model.generation_config.num_beams, translator.model.generation_config.length_penalty) == (
        3,
        0.3,
    )


def test_two_vocabularies_are_two_tokenizers(tokenizer, tmp_path):
    target = train_tokenizer(["ein Hund läuft", "zwei Katzen"], vocab_size=270, min_frequency=1, show_progress=False)
    model_of(target_vocab_size=280).save_pretrained(tmp_path / "model")
    save_tokenizers(tmp_path / "model", tokenizer, target)
    (tmp_path / "converted").mkdir()
    convert(tmp_path / "model", tmp_path / "converted")
    assert (tmp_path / "converted" / TARGET / "tokenizer.json").is_file()
    for folder in ("model", "converted"):
        assert load(tmp_path / folder)(TEXTS, **ALIKE) == expected_of(tmp_path / "model")


def test_opus_models_bring_their_tokenizer(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path / "opus"
    folder.mkdir()
    for side in ("source", "target"):
        with (folder / f"{side}.spm").open("wb") as file:
            options = {"vocab_size": 40, "minloglevel": 2, "hard_vocab_limit": False}
            sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS), model_writer=file, **options)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    names = ["</s>", "<unk>", *(pieces.id_to_piece(i) for i in range(3, len(pieces))), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: token_id for token_id, name in enumerate(names)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    last = len(names) - 1
    ids = {"pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": 0, "forced_eos_token_id": None}
    model = lively(opus_marian(vocab_size=len(names), **ids))
    model.generation_config.update(bad_words_ids=[[last]], forced_eos_token_id=None)
    model.save_pretrained(folder)
    (tmp_path / "converted").mkdir()
    convert(folder, tmp_path / "converted")
    texts = ["A dog runs", "the cat"]
    expected = Translator.from_pretrained(folder, backend="torch")(texts, **ALIKE)
    assert load(tmp_path / "converted")(texts, **ALIKE) == load(folder)(texts, **ALIKE) == expected


def test_calibrating_rewrites_the_record_and_converts_nothing(tmp_path, no_conversion):
    files = Path(__file__).parents[2] / "data" / "captions"
    words = [
        "--files",
        str(files),
        "--source_lang",
        "en",
        "--target_lang",
        "de",
        "--device",
        "cpu",
        "--num_beams",
        "1",
    ]
    (tmp_path / "converted").mkdir()
    convert(CAPTIONS, tmp_path / "converted", quantization="int8")
    model = shutil.copytree(find_model(CAPTIONS), tmp_path / "model", ignore=shutil.ignore_patterns(".*"))
    kept = kept_folder(model, "float32")
    no_conversion()
    for folder in (tmp_path / "converted", model):
        before = Translator.from_pretrained(folder, device="cpu").calibration
        calibrate.main(["--model", str(folder), *words[:-2]])
        assert Translator.from_pretrained(folder, device="cpu").calibration != before
    settings = json.loads((model / "generation_config.json").read_text())
    assert read_record(kept)["generation_config"] == settings


# --- kept in the user's cache ---


def test_it_is_converted_once_and_again_when_the_model_changes(saved, cache, no_conversion, monkeypatch):
    load(saved)
    load(saved, quantization="int8")
    places = user_cache(saved)
    assert {path.name for path in places.iterdir()} == {"float32", "int8"}
    assert cache in places.parents
    assert not any(path.name.startswith(".") for path in saved.iterdir())  # nothing beside the model
    before = (places / "float32" / "model.bin").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(converted_folder, "convert", lambda *_, **__: pytest.fail("converted again"))
        for path in saved.iterdir():  # as in an image, in which every file is written again
            path.write_bytes(path.read_bytes())
            os.utime(path, ns=(1, 1))
        load(saved)
    other = AutoModelForSeq2SeqLM.from_pretrained(saved)
    torch.nn.init.zeros_(other.lm_head.weight)
    other.save_pretrained(saved)
    load(saved)
    assert (places / "float32" / "model.bin").read_bytes() != before


def test_other_weights_of_the_same_size_and_time_are_converted_again(saved):
    load(saved)
    weights = saved / "model.safetensors"
    before, content = weights.stat(), weights.read_bytes()
    weights.write_bytes(content[:-4096] + bytes(4096))
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert weights.stat().st_size == before.st_size
    expected = Translator.from_pretrained(saved, backend="torch").score([TEXTS[:2]])
    found = load(saved).score([TEXTS[:2]])
    assert next(found).log_probability == pytest.approx(next(expected).log_probability, abs=1e-4)


def test_other_forbidden_words_are_converted_again(saved):
    load(saved)
    change(saved / "generation_config.json", bad_words_ids=[[7]])
    assert load(saved)(TEXTS, **ALIKE) == expected_of(saved)


def test_a_cache_that_can_not_be_written_is_no_obstacle(saved, cache, caplog):
    expected = expected_of(saved)
    cache.write_text("a file where the folder should be")
    assert load(saved)(TEXTS, **ALIKE) == expected
    assert "the model is converted at each start" in caplog.text


def test_one_that_can_not_be_read_is_made_again(saved):
    expected = load(saved)(TEXTS[:2], **ALIKE)
    for name, content in [
        ("model.bin", b"short"),
        ("config.json", b"["),
        ("shared_vocabulary.json", None),
        (RECORD, b"[]"),
    ]:
        path = user_cache(saved) / "float32" / name
        path.write_bytes(content) if content else path.unlink()
        assert load(saved)(TEXTS[:2], **ALIKE) == expected


def test_a_conversion_that_fails_leaves_the_older_one(saved, monkeypatch):
    load(saved)
    before = sorted(user_cache(saved).rglob("*"))
    change(saved / "config.json", dropout=0.3)
    monkeypatch.setattr(converted_folder, "export_saved", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        load(saved)
    assert sorted(user_cache(saved).rglob("*")) == before


def test_files_that_change_while_they_are_converted_are_converted_again(saved, monkeypatch):
    export = converted_folder.export_saved

    def export_slowly(*args, **options):
        export(*args, **options)
        change(saved / "config.json", dropout=0.3)

    with monkeypatch.context() as patch:
        patch.setattr(converted_folder, "export_saved", export_slowly)
        load(saved)
    assert "times" not in read_record(user_cache(saved) / "float32")["made_from"]
    load(saved)
    assert "times" in read_record(user_cache(saved) / "float32")["made_from"]


def test_others_may_read_what_is_kept(saved):
    load(saved)
    mask = os.umask(0)
    os.umask(mask)
    assert (user_cache(saved) / "float32").stat().st_mode & 0o777 == 0o777 & ~mask


def _load(cache: Path, folder: Path) -> None:
    os.environ["HF_HOME"] = str(cache)  # importing the tests sets another one
    load(folder)


def test_processes_that_convert_at_once_leave_one_whole_model(saved, cache):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_load, args=(cache, saved)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0, 0]
    assert converted_folder._record_of(user_cache(saved) / "float32", saved)


# --- what the files say ---


def test_a_config_that_lacks_a_field_is_converted_by_torch(saved, monkeypatch):
    change(saved / "config.json", alignment_layer="gone", d_k="gone")
    monkeypatch.setattr(converted_folder, "export_saved", lambda *_, **__: pytest.fail("converted without torch"))
    assert load(saved)(TEXTS, **ALIKE) == expected_of(saved)


def test_a_model_without_settings_for_decoding(saved):
    (saved / "generation_config.json").unlink()
    assert load(saved)(TEXTS, **ALIKE) == expected_of(saved)


def test_missing_weights_get_a_sentence(saved):
    (saved / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"can't be loaded .*: give a folder with a model and its tokenizer"):
        load(saved)


def test_converting_does_not_import_torch(saved):
    code = f"""
import sys
from vanilla_transformer import Translator
Translator.from_pretrained({str(saved)!r}, device="cpu")("A dog", max_new_tokens=3)
assert not {{"torch", "transformers"}} & sys.modules.keys()
import torch
Translator.from_pretrained({str(saved)!r}, backend="ctranslate2", device="cpu", quantization="bfloat16")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
