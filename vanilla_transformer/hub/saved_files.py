"""The files of a saved model, in a folder or on the Hub, read without torch and transformers.

    config = read_config("multi30k-en-de-tiny")
    config.d_model, config.source_lang      # 128, 'en'

An engine such as CTranslate2 needs no more than this, a tokenizer and the weights. `loading.py` reads the same files
with the library, for torch.
"""

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from vanilla_transformer.models.searches import all_options, require_values


logger = logging.getLogger(__name__)

# Models that come with the package, and one name for several of them.
EVERYDAY, CAPTIONS = "everyday", "multi30k-en-de-tiny"
FAMILIES = {EVERYDAY: ("everyday-en-de", "everyday-en-fr-es", "everyday-en-zh", "everyday-to-en")}
BUNDLED = (*FAMILIES[EVERYDAY], CAPTIONS)
CONFIG, GENERATION_CONFIG = "config.json", "generation_config.json"
RECORD = "vanilla_transformer.json"  # of a model that was converted for CTranslate2, whose config.json is the engine's
# Options of `from_pretrained` that say where the files are: a config and a tokenizer take them as well as a model.
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token", "trust_remote_code")
# What libraries raise when files are missing, damaged or those of another model. They do not check what they read,
# so a damaged file may raise anything. `tokenizers` raises `Exception` itself.
LOADING_ERRORS = (Exception,)


# --- files ---


def find_model(name_or_path: str | Path) -> str | Path:
    """Returns the folder of a model that comes with the package, or else the name or path as it is."""
    if is_family(name_or_path):
        *others, last = members_of(name_or_path)
        members = f"{', '.join(others)} or {last}"
        raise ValueError(f"{name_or_path} is a name for several models, and here one is needed: give {members}.")
    if name_or_path in BUNDLED and not Path(name_or_path).is_dir():
        return Path(str(files("vanilla_transformer.model_cards"))) / name_or_path
    return name_or_path


def is_family(name_or_path: str | Path) -> bool:
    """Whether this is one name for several models that come with the package."""
    return name_or_path in FAMILIES and not Path(name_or_path).is_dir()


def members_of(name_or_path: str | Path) -> tuple[str, ...]:
    """Returns the names of a family's models, or else the name or path itself."""
    return FAMILIES[str(name_or_path)] if is_family(name_or_path) else (str(name_or_path),)


def find_file(name_or_path: str | Path, name: str, *, required: bool = True, **options: Any) -> Path | None:
    """Returns the path of a model's file, which is downloaded if the model is on the Hub.

    Args:
        name_or_path: Folder, or name on the Hub.
        name: Name of the file in there.
        required: Whether a missing file is an error; else `None` is returned.
        options: Options of `from_pretrained` that say where the files are; others are ignored.
    """
    model = find_model(name_or_path)
    with errors_in_one_sentence(name_or_path):
        if Path(model).is_dir():
            path = Path(model) / name
            if path.is_file():
                return path
            if required:
                raise FileNotFoundError(f"there is no {name}")
            return None
        return _download(str(model), name, required, hub_options(options))


def hub_options(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that say where files are."""
    return {name: value for name, value in options.items() if name in HUB_OPTIONS and name != "trust_remote_code"}


def _download(repository: str, name: str, required: bool, options: dict[str, Any]) -> Path | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(repository, name, **options))
    except EntryNotFoundError as error:
        # A file that is not in the cache may exist: without the Hub nobody knows.
        if required or (isinstance(error, LocalEntryNotFoundError) and name == CONFIG):
            raise
        return None


def read_object(path: str | Path) -> dict[str, Any]:
    """Reads a JSON file that must hold an object."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({reason_of(error)}): restore or download it again.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a JSON {type(content).__name__}, not an object: restore or download it again.")
    return content


# --- configs ---


class Saved:
    """The fields of a saved config, or the settings of a saved generation config, as attributes; `None` for others.

    Args:
        fields: The content of the file.
    """

    def __init__(self, fields: dict[str, Any]):
        vars(self).update(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def read_config(name_or_path: str | Path, **options: Any) -> Saved:
    """Reads a model's config.

    Args:
        name_or_path: Folder, or name on the Hub.
        options: Options of `from_pretrained`.
    """
    if record := read_record(name_or_path):
        return Saved(record["config"])
    path = find_file(name_or_path, CONFIG, **options)
    with errors_in_one_sentence(name_or_path):
        return Saved(read_object(str(path)))


def read_generation_config(name_or_path: str | Path, config: Saved, **options: Any) -> Saved:
    """Reads a model's decoding settings, from its `generation_config.json` or else from its config.

    Args:
        name_or_path: Folder, or name on the Hub.
        config: The model's config.
        options: Options of `from_pretrained`.
    """
    if record := read_record(name_or_path):
        return Saved(checked_settings(record["generation_config"], name_or_path))
    path = find_file(name_or_path, GENERATION_CONFIG, required=False, **options)
    return Saved(vars(config) if path is None else read_settings(path))


def read_record(name_or_path: str | Path) -> dict[str, Any] | None:
    """Returns the record of a model that was converted for CTranslate2; `None` for any other model."""
    path = Path(find_model(name_or_path)) / RECORD
    return read_object(path) if path.is_file() else None


def read_card(name_or_path: str | Path) -> dict[str, Any]:
    """Returns what the header of a model's card (README.md) says for people: `description`, and texts of `widget`."""
    if record := read_record(name_or_path):
        return record["card"]
    import yaml  # comes with huggingface_hub

    try:
        path = find_file(name_or_path, "README.md", required=False)
        match = path and re.match(r"\s*---\r?\n(.*?)\r?\n---\s", path.read_text(encoding="utf-8"), re.DOTALL)
        header = (match and yaml.safe_load(match[1])) or {}
        texts = [str(example["text"]) for example in header.get("widget") or []]
        return {"description": str(header.get("description") or ""), "examples": texts}
    except Exception as error:  # a card is written by hand, and no reason not to use the model
        logger.warning(f"The card of {name_or_path} can't be read ({error}): the page has no examples for it.")
        return {}


def read_settings(path: str | Path) -> dict[str, Any]:
    """Reads a `generation_config.json`, and refuses one that can't be used."""
    return checked_settings(read_object(path), path)


def checked_settings(settings: dict[str, Any], place: str | Path) -> dict[str, Any]:
    """Refuses decoding settings that no search can use."""
    try:
        require_values(**{name: settings.get(name) for name in all_options()})
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    return settings


# --- errors ---


class LoadingError(ValueError):
    """Files of a model that are missing, damaged or not those of one model."""


@contextmanager
def errors_in_one_sentence(name_or_path: str | Path) -> Iterator[None]:
    """Turns the libraries' loading errors into a `LoadingError` of one sentence."""
    try:
        yield
    except LOADING_ERRORS as error:
        reason = "there is no such folder" if _is_missing_path(name_or_path) else reason_of(error)
        finished = Path(name_or_path) / "model"  # of a run
        remedy = "give a folder with a model and its tokenizer, or a name on the Hub."
        if (finished / CONFIG).is_file():
            remedy = f"did you mean {finished}?"
        raise LoadingError(f"{name_or_path} can't be loaded ({reason}): {remedy}") from error


def _is_missing_path(name_or_path: str | Path) -> bool:
    """Whether this is a path that does not exist, and can't be a name on the Hub."""
    if Path(name_or_path).exists():
        return False
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(os.fspath(name_or_path))
    except HFValidationError:
        return True
    return False


def reason_of(error: BaseException) -> str:
    """Returns the first line of an error's message, without the full stop; of a refused config field, the second: it
    says why."""
    if isinstance(error, UnpicklingError):
        return "its weights are a pickle with more than tensors, which is not opened: get them as safetensors"
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].endswith(":") and type(error).__name__.startswith("StrictDataclass"):
        lines = lines[1:]
    return lines[0].strip().rstrip(" .:") if lines else "a file is empty or truncated"
