"""Loading configs and whole models from a folder or the Hub, with error messages of one sentence.

    from vanilla_transformer.loading import load_model

    model = load_model("runs/demo/model")     # any encoder-decoder that `AutoModelForSeq2SeqLM` loads

The library reports an unusable folder in about ten different ways, and fills weights that a file lacks with random
numbers. Here both raise a `ValueError` that names the folder and the remedy.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedConfig, PreTrainedModel


# What the library raises when files are missing, truncated or those of another model.
LOADING_ERRORS = (OSError, ValueError, RuntimeError, EOFError, UnpicklingError, SafetensorError)
# Options of `from_pretrained` that say where the files are: a config and a tokenizer take them as well as a model.
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token", "trust_remote_code")


BUNDLED = ("multi30k-en-de-tiny",)  # models that come with the package


def find_model(name_or_path: str | Path) -> str | Path:
    """Returns the folder of a model that comes with the package, or else the name or path as it is."""
    if name_or_path in BUNDLED and not Path(name_or_path).is_dir():
        return Path(str(files("vanilla_transformer.model_cards"))) / name_or_path
    return name_or_path


def load_model(name_or_path: str | Path, *, trust_remote_code: bool = False, **options: Any) -> PreTrainedModel:
    """Loads an encoder-decoder with all its weights, in evaluation mode.

    Nothing is unpickled: weights come from safetensors, or from a `pytorch_model.bin` that holds tensors only.

    Args:
        name_or_path: Folder, or name on the Hub.
        trust_remote_code: Whether to run Python files of the folder. This package's own models do not need them.
        options: Other options of `from_pretrained`, such as `revision`, `dtype` and `device_map`. By default weights
            keep the type they have in the file.
    """
    with errors_in_one_sentence(name_or_path):
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            find_model(name_or_path), trust_remote_code=trust_remote_code, output_loading_info=True, **options
        )
    if report["missing_keys"]:
        raise ValueError(
            f"{name_or_path} has no weights {min(report['missing_keys'])}: its files are not those of one whole "
            "model. Download or save the model again."
        )
    return model.eval()


def load_config(name_or_path: str | Path, **options: Any) -> PreTrainedConfig:
    """Loads a model's config.

    Args:
        name_or_path: Folder, or name on the Hub.
        options: Options of `from_pretrained`, such as `revision`.
    """
    with errors_in_one_sentence(name_or_path):
        return AutoConfig.from_pretrained(find_model(name_or_path), **options)


@contextmanager
def errors_in_one_sentence(name_or_path: str | Path) -> Iterator[None]:
    """Turns the library's loading errors into one `ValueError` of one sentence."""
    try:
        yield
    except LOADING_ERRORS as error:
        raise ValueError(
            f"{name_or_path} can't be loaded ({reason_of(error)}): give a folder with a model and its tokenizer, or a "
            "name on the Hub."
        ) from error


def find_device(name: str | None) -> torch.device:
    """Returns the device of that name, or without a name a GPU if there is one."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise ValueError(f"device={name!r} is unknown to torch: give cpu, cuda or cuda:1, for instance.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r}: this torch sees no GPU. Give cpu, or leave it out.")
    return device


def reason_of(error: Exception) -> str:
    """Returns the first line of an error's message, without the full stop."""
    if isinstance(error, UnpicklingError):
        return "its weights are a pickle with more than tensors, which is not opened: get them as safetensors"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(" .:") if lines else "a file is empty or truncated"
