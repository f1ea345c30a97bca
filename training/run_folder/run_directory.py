"""The folder of a run: its lock, recipe.yaml with all its keys, and run.json with versions, seed and data."""

import json
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import MISSING, asdict, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml
from datasets import Dataset, IterableDataset
from filelock import Timeout
from transformers import PreTrainedModel

from vanilla_transformer.hub.loading import read_object
from vanilla_transformer.models.searches import all_options
from vanilla_transformer.safe_files.atomic_writes import remove_unfinished, write_json, write_text
from vanilla_transformer.safe_files.file_locks import lock
from vanilla_transformer.training.run_folder.checkpoints import NEWEST, complete_checkpoints


if TYPE_CHECKING:
    from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
    from vanilla_transformer.training.data.parallel_corpus import Corpus


PACKAGES = ("vanilla-transformer", "transformers", "torch", "datasets", "tokenizers", "accelerate", "sacrebleu")
LOCK, OWNER = ".lock", ".owner.json"
JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "JOB_ID")
# Keys that belong to one start and not to the run, keys that the library or we fill in, and secrets.
NOT_IN_RECIPE = {
    *(
        "resume_from_checkpoint",
        "take_over",
        "hub_token",
        "include_num_input_tokens_seen",
        "accelerator_config",
        "do_eval",
        "debug",
    ),
    *("dataloader_pin_memory", "disable_tqdm"),
    "gradient_accumulation_steps",  # follows from tokens_per_update
}
# Keys that the library fills in itself if the other key is not set.
FILLED_IN = {
    "fsdp_config": "fsdp",
    "lr_scheduler_kwargs": "lr_scheduler_kwargs",
    "gradient_checkpointing_kwargs": "gradient_checkpointing_kwargs",
}


@contextmanager
def exclusive(folder: Path, *, take_over: bool = False) -> Iterator[None]:
    """Keeps other processes from training in the same folder.

    The system releases the lock when this process ends, however it ends. It may not see processes of another computer
    that share the folder: those are known by what they wrote beside the lock. A scheduler runs a job once at a time,
    so a record of the same job was left by a start of it that has ended.

    Args:
        folder: The folder of the run.
        take_over: Whether to ignore the record of another computer.
    """
    is_new = not folder.exists()
    path = folder / OWNER
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if is_new:
                stack.callback(_remove_if_empty, folder)
            stack.enter_context(lock(folder / LOCK))
        except Timeout as error:
            raise ValueError(
                f"Another process is training in {folder}: wait until it ends, or choose another --output_dir."
            ) from error
        except OSError as error:
            raise OSError(f"{folder} can't be written ({error.strerror}): choose another --output_dir.") from error
        if not take_over and path.exists():
            _require_ended(path)
        owner = {"host": socket.gethostname(), "process": os.getpid(), "since": _now(), "job": _job()}
        write_json(path, owner)
        try:
            remove_unfinished(folder)
            yield
        finally:
            path.unlink(missing_ok=True)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _job() -> str | None:
    """The scheduler's id of this job, which it keeps when it is started again: Slurm's, PBS's, Grid Engine's. Other
    schedulers may set JOB_ID."""
    return next((f"{name}={os.environ[name]}" for name in JOB_IDS if os.environ.get(name)), None)


def _require_ended(path: Path) -> None:
    owner = read_object(path)
    if owner.get("host", socket.gethostname()) == socket.gethostname():
        return
    if owner.get("job") and owner["job"] == _job():
        return
    raise ValueError(
        f"Process {owner.get('process')} on {owner['host']} has been training in {path.parent} since "
        f"{owner.get('since')}: wait until it ends, or add --take_over true if it has already ended."
    )


def require_fresh(folder: Path, resume: str | None) -> None:
    """Refuses a folder that already holds a run, unless that run is resumed.

    A run that ended before its first checkpoint is replaced: it has nothing to resume from and nothing to lose.

    Args:
        folder: The folder of the run.
        resume: The checkpoint to resume from, if any.
    """
    if (
        (folder / "run.json").is_file()
        and (complete_checkpoints(folder) or (folder / "model").exists())
        and not resume
    ):
        raise ValueError(
            f"{folder} already holds a run: add --resume_from_checkpoint last to resume it, or choose another "
            "--output_dir."
        )
    if resume and resume in NEWEST and not complete_checkpoints(folder):
        raise ValueError(
            f"There is no run in {folder} to resume, because it has no complete checkpoint: leave out "
            "--resume_from_checkpoint to start it."
        )
    if resume and resume not in NEWEST and not Path(resume).is_dir():
        raise ValueError(f"There is no checkpoint {resume}: give its folder, or last for the newest one.")


# Keys that a resumed run may change: its length, evaluations, checkpoints, logs, machine, and the final model's
# decoding. Others were used up when the run started (text, vocabulary, weights) or are in its checkpoints (optimizer,
# schedule): a new value would do nothing, or make another run.
CHANGEABLE = {
    *("max_steps", "num_train_epochs", "output_dir", "early_stopping", "max_grad_norm", *all_options()),
    *("load_best_model_at_end", "metric_for_best_model", "greater_is_better", "references", "push_to_hub"),
    *("bf16", "fp16", "tf32", "use_cpu", "num_proc", "report_to", "run_name", "project", "skip_memory_metrics"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs", "restore_callback_states_from_checkpoint"),
}
CHANGEABLE_GROUPS = (
    *("eval_", "save_", "average_", "validation_", "test_", "logging_", "log_", "trackio_", "hub_"),
    *("dataloader_", "ddp_", "torch_"),
)


def require_resumable(folder: Path, checkpoint: Path, *arguments: Any) -> dict[str, Any]:
    """Refuses to resume a run with keys that a resumed run can't change.

    If the arguments leave open how large an update is, it is as large as before, on any number of processes.

    Args:
        folder: The folder of the run.
        checkpoint: The checkpoint to resume from.
        arguments: The arguments of the run now, those of the training last.

    Returns:
        A record for run.json: the checkpoint, and each changed key with its value before and now.
    """
    record: dict[str, Any] = {"resumed_from": checkpoint.name, "changed": {}}
    if not (folder / "recipe.yaml").is_file():
        return record
    before = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    *_, training = arguments
    given = training.tokens_per_update is not None or training.gradient_accumulation_steps > 1
    if (
        not given
        and before.get("max_tokens", type(training).max_tokens) == training.max_tokens
        and "tokens_per_update" in before
    ):
        training.share_update(before["tokens_per_update"])
    now = _differing_keys(*arguments)
    for name in dict.fromkeys([*before, *now]):
        if before.get(name) == now.get(name):
            continue
        if name not in CHANGEABLE and not name.startswith(CHANGEABLE_GROUPS):
            raise ValueError(
                f"The run in {folder} was started with {_stated(name, before)}, not {_stated(name, now)}, which a "
                "resumed run can't change: resume with the recipe it was started with, or start a new run in another "
                f"--output_dir (--model_name_or_path {checkpoint} continues from its weights)."
            )
        record["changed"][name] = {"before": _stated(name, before), "now": _stated(name, now)}
    return record


def describe_changes(record: dict[str, Any]) -> str | None:
    """Returns a sentence about the keys that a resumed run changes, if any."""
    changes = [f"{change['now']} (before: {change['before']})" for change in record.get("changed", {}).values()]
    return f"From {record['resumed_from']} on: {', '.join(changes)}." if changes else None


def _stated(name: str, keys: dict[str, Any]) -> str:
    return f"{name}={keys[name]!r}" if name in keys else f"the default {name}"


def require_same_content(folder: Path, digests: dict[str, dict[str, str]]) -> None:
    """Refuses to resume a run whose training text, or other text it was started with, has changed.

    Args:
        folder: The folder of the run.
        digests: What `content_digests` returns now.
    """
    path = folder / "run.json"
    before = read_object(path).get("data", {}) if path.is_file() else {}  # runs of older versions have none
    for split, was in before.items():
        now = digests.get(split, {})
        # Files may be added to the other splits, or taken away. The training text is read in one order.
        names = sorted(was.keys() | now.keys()) if split == "train" and now else sorted(was.keys() & now.keys())
        for name in names:
            if was.get(name) != now.get(name):
                change = "changed" if name in was and name in now else "been removed" if name in was else "been added"
                raise ValueError(
                    f"{name} has {change} since the run in {folder} was started, so the run can't be resumed exactly: "
                    "restore it, or choose another --output_dir."
                )


def versions(*more: str) -> dict[str, str]:
    """Returns the versions of the packages that results depend on, as far as they are installed.

    Args:
        more: Further packages.
    """
    installed = {}
    for name in (*PACKAGES, *more):
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def write_recipe(folder: Path, *arguments: Any) -> None:
    """Writes recipe.yaml: every key whose value is not its default, from the recipe or the command line."""
    text = yaml.safe_dump(_differing_keys(*arguments), sort_keys=False, allow_unicode=True)
    write_text(folder / "recipe.yaml", text)


def _differing_keys(*arguments: Any) -> dict[str, Any]:
    recipe: dict[str, Any] = {}
    for group in arguments:
        content = group.to_dict() if hasattr(group, "to_dict") else asdict(group)
        for field in fields(group):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            value = content.get(field.name)
            filled_in = field.name in FILLED_IN and not content[FILLED_IN[field.name]]
            if field.init and field.name not in NOT_IN_RECIPE and value != default and not filled_in:
                recipe[field.name] = value
        if hasattr(group, "update_limit"):
            recipe["tokens_per_update"] = group.update_limit
    return json.loads(json.dumps(recipe, default=str))


def write_description(
    folder: Path,
    model: PreTrainedModel,
    corpus: "Corpus",
    datasets: dict[str, Dataset | IterableDataset],
    args: "TranslationTrainingArguments",
    digests: dict[str, dict[str, str]],
    resumed: dict[str, Any],
) -> None:
    """Writes run.json: command, versions, machine, seed, sizes, digests of the text, and what cleaning dropped.

    It describes the first start of a run. A resumed run adds a record to `starts`, with `resumed` in it.
    """
    path, report, start = folder / "run.json", corpus.report, {**_start(args), **resumed}
    if args.resume_from_checkpoint and path.is_file():
        run = read_object(path)
        write_json(path, {**run, "starts": [*run["starts"], start]})
        return
    run = {
        **start,
        "seed": args.seed,
        "parameters": model.num_parameters(),
        # A stream does not know its length.
        "pairs": {split: len(pairs) for split, pairs in datasets.items() if hasattr(pairs, "__len__")},
        "cleaning": report and report.as_dict(),
        "data": digests,
        "example": _example(datasets),
    }
    write_json(path, {**run, "starts": [start]})


def _example(datasets: dict[str, Dataset | IterableDataset]) -> str | None:
    """Returns a sentence for the model card: the first of a validation or test set that is of middle length."""
    for split in ("validation", "test"):
        if isinstance(pairs := datasets.get(split), Dataset):
            sources = pairs[:100]["source"]
            return next((text for text in sources if 4 <= len(text.split()) <= 15), sources[0])
    return None


def _start(args: "TranslationTrainingArguments") -> dict[str, Any]:
    """Returns what belongs to one start of a run: command, time, versions, machine."""
    return {
        "command": [word.replace(args.hub_token, "***") if args.hub_token else word for word in sys.argv],
        "started": _now(),
        "python": platform.python_version(),
        "versions": versions(),
        "device": torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else args.device.type,
        "processes": args.world_size,
        "threads": torch.get_num_threads(),
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
