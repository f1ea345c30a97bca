"""Loading configs and whole models from a folder or the Hub, with error messages of one sentence.

    from vanilla_transformer.hub.loading import load_model

    model = load_model("runs/demo/model")     # any encoder-decoder that `AutoModelForSeq2SeqLM` loads

The library reports an unusable folder in about ten different ways, fills weights that a file lacks with random
numbers, and ignores a `generation_config.json` that it can't read. Here each raises a `ValueError` that names the
folder and the remedy. No code of a model's folder runs unless `trust_remote_code` is set, and nobody is asked for it.
"""

from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET

from .process_locks import LOADING
from .saved_files import (
    GENERATION_CONFIG,
    HUB_OPTIONS,
    LOADING_ERRORS,
    errors_in_one_sentence,
    find_file,
    find_model,
    hub_options,
    read_object,
    read_record,
    read_settings,
    reason_of,
)


QUANTIZED = "quantization_config"  # of a config whose weights the library itself unpacks


@LOADING
def load_model(name_or_path: str | Path, *, trust_remote_code: bool = False, **options: Any) -> PreTrainedModel:
    """Loads an encoder-decoder with all its weights, in evaluation mode.

    Nothing is unpickled: weights come from safetensors, or from a `pytorch_model.bin` that holds tensors only.

    Args:
        name_or_path: Folder, or name on the Hub.
        trust_remote_code: Whether to run Python files of the folder. This package's own models do not need them.
        options: Other options of `from_pretrained`, such as `revision`, `dtype` and `device_map`. By default weights
            keep the type they have in the file.
    """
    _require_readable_settings(name_or_path, **hub_options(options))
    _require_fitting_weights(name_or_path, trust_remote_code=trust_remote_code, **hub_options(options))
    config = load_config(name_or_path, trust_remote_code=trust_remote_code, **hub_options(options))
    dtype = _dtype_to_cast_to(config, options)
    if dtype is not None:
        options = {**options, "dtype": torch.get_default_dtype()}
    with errors_in_one_sentence(name_or_path):
        model, report = AutoModelForSeq2SeqLM.from_pretrained(
            find_model(name_or_path), trust_remote_code=trust_remote_code, output_loading_info=True, **options
        )
    if dtype is not None:
        _cast(model, dtype)
    if report["missing_keys"]:
        raise ValueError(
            f"{name_or_path} has no weights {min(report['missing_keys'])}: its files are not those of one whole "
            "model. Download or save the model again."
        )
    require_finite(model, name_or_path)
    return model.eval()


def _dtype_to_cast_to(config: PreTrainedConfig, options: dict[str, Any]) -> torch.dtype | None:
    """Returns the type of a model's weights; `None` if `from_pretrained` must make them in it.

    In any other type than torch's default, `from_pretrained` changes the default for all threads of the process. They
    may translate meanwhile. Quantised weights and `device_map` leave no choice.
    """
    if getattr(config, QUANTIZED, None) or QUANTIZED in options or "device_map" in options:
        return None
    dtype = options.get("dtype") or options.get("torch_dtype") or "auto"
    dtype = config.dtype if dtype == "auto" else dtype
    dtype = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    return dtype if isinstance(dtype, torch.dtype) and dtype.is_floating_point else None


def _cast(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Casts a model as if it had been loaded in that type."""
    # transformers does not document which parts of a model, such as T5's `wo`, stay in float32.
    kept = model._get_dtype_plan(dtype)
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_floating_point() and not kept.keys() & set(name.split(".")):
            tensor.data = tensor.data.to(dtype)
    model.config.dtype = dtype


def load_config(name_or_path: str | Path, *, trust_remote_code: bool = False, **options: Any) -> PreTrainedConfig:
    """Loads a model's config.

    Args:
        name_or_path: Folder, or name on the Hub.
        trust_remote_code: Whether to run Python files of the folder.
        options: Options of `from_pretrained`, such as `revision`.
    """
    if record := read_record(name_or_path):
        raise ValueError(
            f"{name_or_path} is converted for CTranslate2, and torch can't load it: leave out backend, or give the "
            f"model that it was made from, {record['made_from']['model']}."
        )
    with errors_in_one_sentence(name_or_path):
        return AutoConfig.from_pretrained(find_model(name_or_path), trust_remote_code=trust_remote_code, **options)


def load_generation_config(name_or_path: str | Path, config: PreTrainedConfig, **options: Any) -> GenerationConfig:
    """Loads a model's decoding settings, from its `generation_config.json` or else from its config.

    Args:
        name_or_path: Folder, or name on the Hub.
        config: The model's config.
        options: Options of `from_pretrained` that say where the files are.
    """
    options = hub_options(options)
    if not _require_readable_settings(name_or_path, **options):
        return GenerationConfig.from_model_config(config)
    with errors_in_one_sentence(name_or_path):
        return GenerationConfig.from_pretrained(find_model(name_or_path), **options)


def require_finite(model: PreTrainedModel, name: str | Path = "The model") -> None:
    """Refuses a model with weights that are not numbers. Some engines would translate with them, into plausible text.

    Args:
        model: The model.
        name: The subject of the error message.
    """
    for weight_name, tensor in chain(model.named_parameters(), model.named_buffers()):
        if tensor.is_floating_point() and not tensor.is_meta and not _is_finite(tensor):
            raise ValueError(
                f"{name} has weights that are not numbers (NaN or infinity) in {weight_name}: its training diverged "
                "or its file is damaged. Use an earlier checkpoint, or download it again."
            )


def _is_finite(tensor: torch.Tensor) -> bool:
    # A sum is finite only if all numbers are, and takes a fifth of the time. It may overflow: then look at each.
    return bool(tensor.detach().sum(dtype=torch.float32).isfinite()) or bool(tensor.isfinite().all())


def _require_fitting_weights(name_or_path: str | Path, *, trust_remote_code: bool, **options: Any) -> None:
    """Refuses what the head of the weight file shows to be wrong, before a model is built: a config with more layers
    than the file has weights, which would take minutes, and whole numbers, which would become weights.

    Only safetensors files are read.
    """
    types: dict[str, str] = {}
    with errors_in_one_sentence(name_or_path):
        for path in _weight_files(name_or_path, options):
            with safe_open(path, framework="pt") as file:
                types |= {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    if not types:
        return
    config = vars(load_config(name_or_path, trust_remote_code=trust_remote_code, **options))
    for name, value in config.items():
        if name.endswith("layers") and isinstance(value, int) and value > len(types):
            raise ValueError(
                f"{name_or_path} has {name}={value} in config.json, but its weight file has {len(types)} weights: its "
                "files are not those of one model. Download or save the model again."
            )
    for name, kind in types.items():
        is_number = kind in ("BF16", "C64") or kind.startswith("F")
        if name.endswith((".weight", ".bias")) and not is_number and not config.get(QUANTIZED):
            raise ValueError(
                f"{name_or_path} stores {name} as {kind}, not as floating-point numbers: save the model as float32, "
                "and choose int8 with --quantization."
            )


def _weight_files(name_or_path: str | Path, options: dict[str, Any]) -> list[Path]:
    """Returns the paths of a model's safetensors files: one, those that its index names, or none."""
    names = [SAFE_WEIGHTS_NAME]
    if index := find_file(name_or_path, SAFE_WEIGHTS_INDEX_NAME, required=False, **options):
        names = sorted(set(dict(read_object(index)["weight_map"]).values()))
    return [path for name in names if (path := find_file(name_or_path, name, required=False, **options))]


def _require_readable_settings(name_or_path: str | Path, **options: Any) -> bool:
    """Refuses a `generation_config.json` that can't be used; returns whether there is one."""
    path = find_file(name_or_path, GENERATION_CONFIG, required=False, **options)
    if path is None:
        return False
    read_settings(path)
    return True


def find_device(name: str | None) -> torch.device:
    """Returns the device of that name, or without a name a GPU or another accelerator if there is one."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    try:
        device = torch.device(name or accelerator or "cpu")
    except RuntimeError as error:
        raise ValueError(f"device={name!r} is unknown to torch: give cpu, cuda or cuda:1, for instance.") from error
    if device.type not in ("cpu", getattr(accelerator, "type", None)):
        seen = "no accelerator" if accelerator is None else f"no {device.type}, only {accelerator.type}"
        raise ValueError(f"device={name!r}: this torch sees {seen}. Give {accelerator or 'cpu'}, or leave it out.")
    return device


def load_tokenizers(
    name_or_path: str | Path, *, trust_remote_code: bool = False, **options: Any
) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase | None]:
    """Loads the joint or source tokenizer of a folder or a Hub repository, and the target's if there is one.

    Args:
        name_or_path: Folder, or name on the Hub.
        trust_remote_code: Whether to run Python files of the folder.
        options: Those of `from_pretrained`, such as `revision`.
    """
    target_file = find_file(name_or_path, f"{TARGET}/tokenizer_config.json", required=False, **options)
    name_or_path = find_model(name_or_path)
    with errors_in_one_sentence(name_or_path):
        options["trust_remote_code"] = trust_remote_code
        tokenizer = AutoTokenizer.from_pretrained(name_or_path, **options)
        if not target_file:
            return tokenizer, None
        return tokenizer, AutoTokenizer.from_pretrained(name_or_path, subfolder=TARGET, **options)


__all__ = [
    "HUB_OPTIONS",
    "LOADING_ERRORS",
    "errors_in_one_sentence",
    "find_device",
    "find_model",
    "load_config",
    "load_generation_config",
    "load_model",
    "load_tokenizers",
    "read_object",
    "reason_of",
    "require_finite",
]
