"""What a run leaves behind to be understood and repeated: the recipe as resolved, versions, seed, data counts."""

import json
import os
import platform
import sys
import time
from contextlib import suppress
from dataclasses import MISSING, asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import yaml

from vanilla_transformer.training.averaging import checkpoints


PACKAGES = ("vanilla-transformer", "transformers", "torch", "datasets", "tokenizers", "accelerate", "sacrebleu")
# Said of one start, not of the run; or filled in by the library and us; or a secret.
NOT_IN_RECIPE = {
    *(
        "resume_from_checkpoint",
        "hub_token",
        "include_num_input_tokens_seen",
        "accelerator_config",
        "do_eval",
        "debug",
    ),
    *("dataloader_pin_memory", "disable_tqdm"),
}
# What the library fills in by itself where the other is not set.
FILLED_IN = {
    "fsdp_config": "fsdp",
    "lr_scheduler_kwargs": "lr_scheduler_kwargs",
    "gradient_checkpointing_kwargs": "gradient_checkpointing_kwargs",
}


def require_fresh(folder: Path, resume: str | None) -> None:
    """Refuses to train into a folder that already holds a run, unless that run is to go on. One that ended before its
    first checkpoint has nothing to go on from, and nothing to lose."""
    if (folder / "run.json").is_file() and (checkpoints(folder) or (folder / "model").exists()) and not resume:
        raise ValueError(
            f"{folder} already holds a run: add --resume_from_checkpoint last to go on with it, or choose another "
            "--output_dir."
        )
    if resume and not folder.is_dir():
        raise ValueError(f"There is no run in {folder} to go on with: leave out --resume_from_checkpoint.")


# What decides which pairs come in which batch: a run can't go on exactly if it changes.
DATA_KEYS = (
    *("dataset", "dataset_config", "train_split", "train_files", "source_lang", "target_lang", "max_tokens", "seed"),
    "data_seed",
    *("gradient_accumulation_steps", "drop_empty", "drop_identical", "drop_duplicates", "max_words", "max_ratio"),
)


def require_same_data(folder: Path, *arguments) -> None:
    """Refuses to go on with a run whose text, seed or batches would not be those it was started with."""
    if not (folder / "recipe.yaml").is_file():
        return
    before = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    now = _differing_keys(*arguments)
    for name in DATA_KEYS:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"The run in {folder} was started with {name}={before.get(name, 'its default')!r}, not "
                f"{now.get(name, 'its default')!r}: go on with the recipe it was started with, or choose another "
                "--output_dir."
            )


def write_json(path: Path, content: Any) -> None:
    """Writes a file that is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def versions(*more: str) -> dict[str, str]:
    """Of the packages that results depend on, as far as they are installed."""
    found = {}
    for name in (*PACKAGES, *more):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write_recipe(folder: Path, *arguments) -> None:
    """recipe.yaml: every key whose value differs from its default, whoever set it."""
    folder.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(_differing_keys(*arguments), sort_keys=False, allow_unicode=True)
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")


def _differing_keys(*arguments) -> dict[str, Any]:
    recipe: dict[str, Any] = {}
    for each in arguments:
        content = each.to_dict() if hasattr(each, "to_dict") else asdict(each)
        for field in fields(each):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            value = content.get(field.name)
            filled_in = field.name in FILLED_IN and not content[FILLED_IN[field.name]]
            if field.init and field.name not in NOT_IN_RECIPE and value != default and not filled_in:
                recipe[field.name] = value
    return json.loads(json.dumps(recipe, default=str))


def write_description(folder: Path, model, corpus, datasets, args) -> None:
    """run.json: command, versions, machine, seed, sizes, and what cleaning dropped."""
    report = corpus.report
    write_json(
        folder / "run.json",
        {
            "command": [word.replace(args.hub_token, "***") if args.hub_token else word for word in sys.argv],
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "python": platform.python_version(),
            "versions": versions(),
            "device": torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else args.device.type,
            "processes": args.world_size,
            "threads": torch.get_num_threads(),
            "seed": args.seed,
            "parameters": model.num_parameters(),
            # A stream does not know its length.
            "pairs": {split: len(each) for split, each in datasets.items() if hasattr(each, "__len__")},
            "cleaning": {"loaded": report.loaded, **report.dropped, "kept": report.kept},
        },
    )
