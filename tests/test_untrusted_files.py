"""Files from outside: damaged ones get a sentence, and code in them never runs unasked."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.remote_code import spread
from tests.training.runs import write_reversals
from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.scripts import (
    convert_marian,
    evaluate_bleu,
    export_ctranslate2,
    plot_attention,
    score,
    translate,
)
from vanilla_transformer.training import train


TEXT = "The cat sleeps."
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
QUICK = {"max_examples": 120, "deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
RECIPE = Path(train.__file__).parent / "recipes" / "multi30k_en_de.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_tokenizer([TEXT], vocab_size=268, min_frequency=1, show_progress=False)
    torch.manual_seed(3)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    model = VanillaTransformerForConditionalGeneration(
        VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), **sizes)
    )
    model.generation_config.update(num_beams=2, length_penalty=0.4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def damaged(folder, tmp_path_factory) -> Path:
    """A copy of the folder that each example damages and restores."""
    return shutil.copytree(folder, tmp_path_factory.mktemp("damaged") / "model")


def translation(folder: Path) -> str:
    return Translator.from_pretrained(folder, device="cpu")(TEXT, max_new_tokens=6)


def outcome(folder: Path) -> tuple[str | None, str | None]:
    """Returns the translation of a text, or else the sentence of the error. Any other error is a traceback."""
    try:
        return translation(folder), None
    except (ValueError, ImportError) as error:
        return None, str(error)


# --- damaged files ---

# What disks, networks and power cuts do: ends that are missing, and blocks of zeros or of anything that is not text.
# (A file that is valid and says something else can't be told from one that its owner edited.)
DAMAGE = {
    "cut": lambda content, start, end: content[:start],
    "zeros": lambda content, start, end: content[:start] + bytes(end - start) + content[end:],
    "noise": lambda content, start, end: content[:start] + b"\xff\xfe\x80" * (end - start) + content[end:],
}
CHANGES = {
    "loss": lambda content, start, end: content[:start] + content[end:],
    "repetition": lambda content, start, end: content[:end] + content[start:],
    "list": lambda content, start, end: b"[" + content[start:end] + b"]",
    "words": lambda content, start, end: content[:start] + b'"a"' + content[end:],
}


def damage(path: Path, kind: str, where: float, share: float) -> bytes:
    """Returns the content of a file with a range of it changed; of safetensors, in the header."""
    content = path.read_bytes()
    size = 8 + int.from_bytes(content[:8], "little") if path.suffix == ".safetensors" else len(content)
    start = int(where * (size - 1))
    return {**DAMAGE, **CHANGES}[kind](content, start, min(start + 1 + int(share * size), size))


ranges = {"where": st.floats(0, 1), "share": st.sampled_from([0.0, 0.001, 0.01, 0.1, 0.5])}


@settings(**QUICK)
@given(name=st.sampled_from(FILES), kind=st.sampled_from(sorted(DAMAGE)), **ranges)
def test_a_damaged_model_gets_a_sentence_or_translates_as_before(folder, damaged, name, kind, where, share):
    (damaged / name).write_bytes(damage(folder / name, kind, where, share))
    text, sentence = outcome(damaged)
    shutil.copyfile(folder / name, damaged / name)
    assert text == translation(folder) if sentence is None else str(damaged) in sentence


@settings(**QUICK)
@given(name=st.sampled_from(FILES), kind=st.sampled_from(sorted(CHANGES)), **ranges)
def test_a_changed_model_never_ends_in_a_traceback(folder, damaged, name, kind, where, share):
    (damaged / name).write_bytes(damage(folder / name, kind, where, share))
    text, sentence = outcome(damaged)
    shutil.copyfile(folder / name, damaged / name)
    assert isinstance(text, str) or sentence


@settings(**{**QUICK, "max_examples": 60})
@given(kind=st.sampled_from(sorted({**DAMAGE, **CHANGES})), **ranges)
def test_a_changed_recipe_gets_a_sentence_or_is_a_recipe(tmp_path, kind, where, share):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(damage(RECIPE, kind, where, share))
    with suppress(SystemExit), errors_as_sentences():  # any other error is a traceback
        arguments = train.parse_recipe("", [str(path), "--output_dir", str(tmp_path / "run")])
        assert len(arguments) == 4


# --- code in files ---

EN_DE = ["--source_lang", "en", "--target_lang", "de"]  # a model of unknown type records no languages


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (translate, ["--model", "MODEL", "--input", "PAIRS.en"]),
        (score, ["--model", "MODEL", "--files", "PAIRS", *EN_DE]),
        (evaluate_bleu, ["--model", "MODEL", "--test_files", "PAIRS", "--output_dir", "OUT", *EN_DE]),
        (plot_attention, ["--model", "MODEL", "--text", TEXT, "--output_dir", "OUT"]),
        (export_ctranslate2, ["--model", "MODEL", "--output_dir", "OUT"]),
        (convert_marian, ["--model", "MODEL", "--output_dir", "OUT"]),
        (train, ["--model_name_or_path", "MODEL", "--train_files", "PAIRS", "--output_dir", "OUT", *EN_DE]),
    ],
    ids=lambda value: value.__name__.split(".")[-1] if hasattr(value, "__name__") else "",
)
def test_no_command_runs_or_offers_to_run_code_of_a_model(folder, tmp_path, monkeypatch, command, words):
    model = shutil.copytree(folder, tmp_path / "model")
    spread(model, tmp_path / "ran")
    places = {"MODEL": str(model), "OUT": str(tmp_path / "out"), "PAIRS": write_reversals(tmp_path, 5)}
    for place, path in places.items():
        words = [word.replace(place, path) for word in words]
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(SystemExit, match=r"contains custom code which must be executed|takes models of type"):
        command.main(words)
    assert not (tmp_path / "ran").exists()


def test_lists_where_objects_belong_get_a_sentence(folder, tmp_path):
    for name in FILES[:4]:
        model = shutil.copytree(folder, tmp_path / name)
        (model / name).write_text("[1]")
        with pytest.raises(ValueError, match=str(model)):
            translation(model)
