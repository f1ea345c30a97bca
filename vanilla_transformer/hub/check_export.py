"""Checks an exported folder: its files are whole, and a process without this package translates the same."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel

from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET

from .loading import LOADING_ERRORS, load_config, read_object, reason_of


WEIGHTS = "model.safetensors"
CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json")
NEEDED = (*CONFIGS, "README.md")
# Sentences that the check translates before and after the export. Only the equality matters.
SENTENCES = ("A man rides a bike.", "When does the train arrive in Berlin?", "Two dogs are playing in the snow.")


# This program can't import this package: it has transformers and the folder, nothing else.
WITHOUT_THIS_PACKAGE = """
import json, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
folder, target, texts = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
subfolder = {"subfolder": target} if target else {}
target_tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True, **subfolder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
outputs = [model.generate(**tokenizer(text, return_tensors="pt"))[0] for text in texts]
print(json.dumps(target_tokenizer.batch_decode(outputs, skip_special_tokens=True)))
"""


def require_whole(folder: str | Path) -> None:
    """Refuses a folder with files that are missing, incomplete, or of another model."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}: export a model first.")
    for name in NEEDED:
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}: export the model again.")
    for name in CONFIGS:
        read_object(folder / name)
    config = load_config(folder)
    for reference in (getattr(config, "auto_map", None) or {}).values():
        if not (folder / f"{reference.split('.')[0]}.py").is_file():
            raise ValueError(f"{folder} has no {reference.split('.')[0]}.py: export the model again.")
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(config)
    _require_weights(folder, {name: list(tensor.shape) for name, tensor in model.state_dict().items()}, model)
    _require_tokenizer(folder, config.vocab_size)
    if getattr(config, "target_vocab_size", None) is not None:
        _require_tokenizer(folder / TARGET, config.target_vocab_size)


def _require_tokenizer(folder: Path, vocab_size: int) -> None:
    try:
        tokens = len(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    except LOADING_ERRORS as error:
        raise ValueError(
            f"The tokenizer in {folder} can't be loaded ({reason_of(error)}): export the model again."
        ) from error
    if tokens > vocab_size:
        raise ValueError(f"The tokenizer in {folder} has more tokens than the model's vocabulary of {vocab_size:,}.")


def _require_weights(folder: Path, expected: dict[str, list[int]], model: PreTrainedModel) -> None:
    shapes: dict[str, list[int]] = {}
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (no iterator)
        except (OSError, SafetensorError) as error:
            raise ValueError(
                f"{path} is not a complete safetensors file ({error}): copy or export it again."
            ) from error
    tied = model.all_tied_weights_keys.keys()
    for name, shape in expected.items():
        if name not in shapes and name not in tied:
            raise ValueError(f"{folder} has no weights {name}: weights and config.json do not belong together.")
        if name in shapes and shapes[name] != shape:
            raise ValueError(f"{name} is {shapes[name]} in {folder}, but {shape} by its config.json.")


def _weight_files(folder: Path) -> list[Path]:
    index = folder / f"{WEIGHTS}.index.json"
    if not index.is_file():
        return [folder / WEIGHTS]
    return [folder / name for name in sorted(set(read_object(index).get("weight_map", {}).values()))]


def check(folder: str | Path, translate: Callable[[str], Any], texts: Sequence[str] = SENTENCES) -> list[str]:
    """Translates with an exported folder, in a process that can't import this package, and returns the translations.

    Raises a `ValueError` if they differ from those of the model before the export.

    Args:
        folder: The exported folder.
        translate: Translates a text with the model before the export: its `Translator`.
        texts: The sentences to translate.
    """
    require_whole(folder)
    expected = [translate(text) for text in texts]
    translations = _translate_without_this_package(Path(folder), texts)
    for text, before, after in zip(texts, expected, translations, strict=True):
        if before != after:
            raise ValueError(f"{folder} translates {text!r} as {after!r}, but before the export it was {before!r}.")
    return translations


def _translate_without_this_package(folder: Path, texts: Sequence[str]) -> list[str]:
    target = TARGET if (folder / TARGET).is_dir() else None
    with tempfile.TemporaryDirectory() as modules:  # a new cache: it must not have an older copy of the code
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_THIS_PACKAGE],
            input=json.dumps([str(folder.resolve()), target, list(texts)]),
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": modules},
            capture_output=True,
            text=True,
            cwd=modules,
        )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise ValueError(f"{folder} can't be loaded without this package: {reason}")
    return json.loads(done.stdout.splitlines()[-1])
