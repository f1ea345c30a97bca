"""A model that was converted for CTranslate2, as a folder that needs nothing else.

    convert("runs/demo/model", "models/en-de", quantization="int8")
    Translator.from_pretrained("models/en-de")

Beside CTranslate2's own files, the folder has the tokenizers and the record `vanilla_transformer.json`:

| key | content |
|---|---|
| `config` | the model's config: type, languages or directions, ids of special tokens |
| `generation_config` | all its decoding settings, and the calibration |
| `quantization`, `positions` | the type of the weights, and the longest sequence |
| `card` | description and examples, for people |
| `made_from` | the model, and what its files were, for a folder that is kept in the user's cache |

Neither torch nor transformers is needed, unless the model's files say too little: a tokenizer that is more than a
`tokenizer.json`, weights in another format, MarianMT, or a config of an older version.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vanilla_transformer.hub.installed import require_torch
from vanilla_transformer.hub.process_locks import LOADING
from vanilla_transformer.hub.saved_files import (
    CONFIG,
    GENERATION_CONFIG,
    HUB_OPTIONS,
    RECORD,
    Saved,
    find_file,
    read_card,
    read_config,
    read_generation_config,
    read_object,
    read_record,
)
from vanilla_transformer.hub.saved_tokenizer import read_tokenizers
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_json

from .saved_weights import find_weights
from .supported_models import OURS
from .to_ctranslate2 import can_export_saved, export, export_saved, require_ctranslate2, table_length


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


FORMAT = 4  # of a converted folder; a change of this number converts every kept model again
CONVERTIBLE = (OURS, "marian")  # model types


def require_convertible(config: Any) -> None:
    """Refuses models of other types."""
    if config.model_type not in CONVERTIBLE:
        raise ValueError(
            f"backend='ctranslate2' takes models of type {' and '.join(CONVERTIBLE)}, not {config.model_type!r}: "
            "leave out backend."
        )


def convert(
    name_or_path: str | Path,
    folder: str | Path,
    *,
    quantization: str = "float32",
    max_positions: int | None = None,
    made_from: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Writes a converted model into an existing folder.

    Args:
        name_or_path: Folder, or name on the Hub: this package's model or MarianMT.
        folder: The folder.
        quantization: Type of the weights.
        max_positions: The longest sequence, for position encodings without a limit.
        made_from: What the record says about the model's files.
        options: Options of `from_pretrained`.
    """
    if read_record(name_or_path):
        raise ValueError(f"{name_or_path} is converted already: give the model that it was made from.")
    folder, where = Path(folder), {name: value for name, value in options.items() if name in HUB_OPTIONS}
    how: dict[str, Any] = {"quantization": quantization, "max_positions": max_positions}
    config = read_config(name_or_path, **where)
    require_convertible(config)
    settings = read_generation_config(name_or_path, config, **where)
    tokenizers: Any = read_tokenizers(name_or_path, **where)
    if tokenizers and can_export_saved(config) and find_weights(name_or_path, **where):
        tokenizer, target = tokenizers
        export_saved(name_or_path, config, settings, tokenizer, folder, target_tokenizer=target, **how, **where)
    else:
        config, of_model, tokenizers = _convert_in_torch(name_or_path, config, folder, how, options)
        settings = settings if config.model_type == OURS else of_model
    for tokenizer, place in zip(tokenizers, (folder, folder / TARGET), strict=True):
        if tokenizer is not None:
            tokenizer.save_pretrained(place)
    record = {
        "format": FORMAT,
        "config": vars(config),
        "generation_config": vars(settings),
        "quantization": quantization,
        "positions": table_length(config, max_positions),
        "card": read_card(name_or_path),
        "made_from": {"model": str(name_or_path), **(made_from or {})},
    }
    write_json(folder / RECORD, record)


@LOADING
def _convert_in_torch(
    name_or_path: str | Path, config: Saved, folder: Path, how: dict[str, Any], options: dict[str, Any]
) -> tuple[Saved, Saved, Any]:
    """Converts a model that is loaded in torch; returns its config, decoding settings and tokenizers."""
    require_torch(f"{name_or_path} is not this package's model with a tokenizer.json in safetensors. Its conversion")
    from vanilla_transformer.hub.loading import load_tokenizers

    from .from_and_to_marian import load

    model = load(name_or_path, config.model_type, **options)
    tokenizers = load_tokenizers(name_or_path, **{name: options[name] for name in options if name in HUB_OPTIONS})
    convert_in_memory(model, *tokenizers, folder, **how)
    texts = (each.to_json_string(use_diff=False) for each in (model.config, model.generation_config))
    fields, settings = map(json.loads, texts)
    return Saved(fields), Saved(settings), tokenizers


def convert_in_memory(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    target_tokenizer: "PreTrainedTokenizerBase | None",
    folder: str | Path,
    **how: Any,
) -> None:
    """Writes CTranslate2's files of a model in memory. MarianMT becomes this package's model first."""
    from .from_and_to_marian import from_marian

    vanilla = from_marian(model) if model.config.model_type == "marian" else model
    export(vanilla, tokenizer, folder, target_tokenizer=target_tokenizer, **how)


# --- folders that are kept ---


def kept_folder(name_or_path: str | Path, quantization: str, *, again: bool = False, **options: Any) -> Path:
    """Returns the folder in the user's cache that has a model converted, and converts it if its files have changed.

    A change of the decoding settings, as by `vanilla calibrate`, only rewrites the record.

    Args:
        name_or_path: Folder, or name on the Hub.
        quantization: Type of the weights.
        again: Whether to convert it in any case.
        options: Options of `from_pretrained`.
    """
    model_folder = Path(str(find_file(name_or_path, CONFIG, **options))).parent
    folder = user_cache(model_folder) / quantization
    record = None if again else _record_of(folder, model_folder)
    settings = read_generation_config(name_or_path, read_config(name_or_path, **options), **options)
    # Forbidden words are a bias among the weights.
    if record is None or record["generation_config"].get("bad_words_ids") != settings.bad_words_ids:
        _convert_and_keep(name_or_path, folder, model_folder, quantization, options)
    elif record["config"]["model_type"] == OURS and record["generation_config"] != vars(settings):
        write_json(folder / RECORD, {**record, "generation_config": vars(settings)})
    return folder


def user_cache(model_folder: Path) -> Path:
    """Returns where converted models are kept: never beside the model, which may belong to a package or a checkout."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "huggingface"
    digest = hashlib.sha256(os.fsencode(model_folder.resolve())).hexdigest()[:16]
    return Path(os.environ.get("HF_HOME", default)) / "vanilla_transformer" / "ctranslate2" / digest


def _convert_and_keep(
    name_or_path: str | Path, folder: Path, model_folder: Path, quantization: str, options: dict[str, Any]
) -> None:
    """Converts a model into the cache. If its files change meanwhile, it is converted again next time."""
    before = _times(model_folder)
    with LOADING, whole_folder(folder, overwrite=True, wait=True) as new:  # conversion may load the model in torch
        convert(name_or_path, new, quantization=quantization, **options)
        made_from = {"contents": _digests(model_folder), "times": _times(model_folder), **_versions()}
        if before.items() <= made_from["times"].items():  # new files may have come from the Hub
            record = read_object(new / RECORD)
            write_json(new / RECORD, {**record, "made_from": {**record["made_from"], **made_from}})


def _record_of(folder: Path, model_folder: Path) -> dict[str, Any] | None:
    """Returns the record of a kept folder; `None` if there is none, or the model's files have changed.

    Copies of a model, as in an image, have other times and the same contents.
    """
    try:
        record = read_object(folder / RECORD)
        made_from = record["made_from"]
        is_same = made_from["times"] == _times(model_folder) or made_from["contents"] == _digests(model_folder)
        return record if is_same and _versions().items() <= made_from.items() else None
    except (OSError, ValueError, KeyError):
        return None


def _versions() -> dict[str, Any]:
    return {"format": FORMAT, "ctranslate2": require_ctranslate2().__version__}


def _times(model_folder: Path) -> dict[str, list[int]]:
    """Returns size and times of a model's files. Programs can set a file's mtime, but not its ctime."""
    stats = {path.relative_to(model_folder).as_posix(): path.stat() for path in _paths_of(model_folder)}
    return {name: [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for name, stat in stats.items()}


def _digests(model_folder: Path) -> list[str]:
    digests = []
    for path in _paths_of(model_folder):
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests


def _paths_of(model_folder: Path) -> Sequence[Path]:
    patterns = ("*.json", "*.safetensors", "*.bin", "*.spm", f"{TARGET}/*.json")
    paths = {path for pattern in patterns for path in model_folder.glob(pattern)}
    return sorted(path for path in paths if path.name != GENERATION_CONFIG)
