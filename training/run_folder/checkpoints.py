"""The checkpoints of a run: their names, their marks, which of them are complete, and which are deleted.

checkpoint-1200/complete       written last: a checkpoint without it is incomplete and ignored
checkpoint-1200/unscheduled    saved because the run was stopped; without the stop it would not exist
"""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

from safetensors import safe_open
from transformers import PreTrainedModel

from vanilla_transformer.hub.loading import read_object
from vanilla_transformer.safe_files.atomic_writes import sync_files


COMPLETE = "complete"
UNSCHEDULED = "unscheduled"
NEWEST = ("last", "True", "true")  # values of resume_from_checkpoint that name no folder
AUTO = "auto"  # another one: the newest if there is one, else a new run


def checkpoint_of_step(folder: str | Path, step: int) -> Path:
    """Returns the folder of the checkpoint after so many updates, which may not exist yet."""
    return Path(folder) / f"checkpoint-{step}"


def step_of(checkpoint: Path) -> int:
    """Returns the number of updates before a checkpoint."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def complete_checkpoints(folder: str | Path) -> list[Path]:
    """Returns the complete checkpoints of a run, oldest first. One that a crash interrupted is left out."""
    named = [path for path in Path(folder).glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted((path for path in named if (path / COMPLETE).is_file()), key=step_of)


def scheduled_checkpoints(folder: str | Path) -> list[Path]:
    """Returns the complete checkpoints that the run would also have without interruptions, oldest first."""
    return [path for path in complete_checkpoints(folder) if not (path / UNSCHEDULED).exists()]


def newest_checkpoint(folder: str | Path) -> Path:
    """Returns the newest complete checkpoint of a run."""
    complete = complete_checkpoints(folder)
    if not complete:
        raise ValueError(f"{folder} has no complete checkpoint to resume from: leave out resume_from_checkpoint.")
    return complete[-1]


def find_checkpoint(folder: str | Path, resume: str | None) -> Path | None:
    """Returns the checkpoint that `resume_from_checkpoint` names, if any."""
    if resume in NEWEST:
        return newest_checkpoint(folder)
    if resume == AUTO:
        return next(reversed(complete_checkpoints(folder)), None)
    return Path(resume) if resume else None


def last_good_checkpoint(folder: str | Path) -> str:
    """Returns a sentence for errors: what a run that has failed can be resumed from."""
    complete = complete_checkpoints(folder)
    return f"The last good checkpoint is {complete[-1]}." if complete else "There was no checkpoint yet."


def not_a_number(folder: str | Path, step: int | None = None) -> ValueError:
    """Returns the error for a loss that is not a number, in a run and perhaps before a step."""
    when = "" if step is None else f" before step {step}"
    return ValueError(
        f"The loss stopped being a number{when}. {last_good_checkpoint(folder)} A lower rate_factor (or "
        "learning_rate), more warmup_steps or a max_grad_norm of 1 usually help."
    )


def not_written(checkpoint: Path, error: Exception) -> OSError:
    """Returns the error for a checkpoint that could not be written."""
    last = last_good_checkpoint(checkpoint.parent)
    return OSError(f"The checkpoint {checkpoint} could not be written ({error}). {last} Is the disk full?")


def require_same_architecture(model: PreTrainedModel, checkpoint: Path) -> None:
    """Refuses a checkpoint of another model."""
    path = checkpoint / "config.json"
    if not path.is_file():
        raise ValueError(f"{checkpoint} is not a checkpoint: it has no config.json.")
    saved, ours = read_object(path), json.loads(model.config.to_json_string(use_diff=False))
    for name in ("model_type", *type(model.config).__annotations__):
        if name in saved and name != "use_cache" and saved[name] != ours.get(name):
            raise ValueError(
                f"{checkpoint} was trained with {name}={saved[name]!r}, but this run has {ours.get(name)!r}: resume "
                "with the recipe it was started with, or start a new output_dir."
            )


def require_last(checkpoint: Path, folder: str | Path) -> None:
    """Refuses to resume before later checkpoints, which `last` and the average would mistake for this run's."""
    names = [path.name for path in complete_checkpoints(folder)]
    if checkpoint.resolve().parent == Path(folder).resolve() and checkpoint.name in names[:-1]:
        raise ValueError(
            f"{folder} has checkpoints after {checkpoint.name}, up to {names[-1]}: move them away to resume from it, "
            "or resume from the last."
        )


@contextmanager
def naming_damage(checkpoint: str | Path | None) -> Iterator[None]:
    """Turns the many errors of unreadable training states into one sentence."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{checkpoint} can't be resumed from, because a file in it is damaged ({reason:.200}): move it away to "
            "resume from the checkpoint before it."
        ) from error


def require_readable(checkpoint: Path) -> None:
    """Refuses a checkpoint with a damaged file of weights or training state. Each reader has another error for it."""
    for path in sorted(checkpoint.rglob("*")):
        with naming_damage(checkpoint):
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):  # compares the size of the file with its header
                    pass
            elif path.suffix in (".pt", ".pth", ".bin"):
                with ZipFile(path) as file:  # of torch.save
                    if file.testzip() is not None:
                        raise ValueError(f"a wrong checksum in {path.name}")


def remove_marks(checkpoint: Path) -> None:
    """Removes the marks of an abandoned run that reached the same step, before the checkpoint is written."""
    for mark in (COMPLETE, UNSCHEDULED):
        (checkpoint / mark).unlink(missing_ok=True)


def mark_complete(checkpoint: Path, *, scheduled: bool) -> None:
    """Marks a checkpoint whose files are written, when they are on the disk."""
    if not scheduled:
        (checkpoint / UNSCHEDULED).touch()
    sync_files(checkpoint)
    (checkpoint / COMPLETE).touch()


def delete_older(newest: Path, limit: int | None, best: str | None) -> None:
    """Deletes the oldest checkpoints beyond a limit.

    A checkpoint of an interruption does not count, so that the run keeps those that it would have kept without it. It
    is deleted when there is a newer one.
    """
    if not limit:
        return
    folder, protected = newest.parent, {newest.name, Path(best or newest).name}
    scheduled = scheduled_checkpoints(folder)
    older = [path for path in scheduled if path.name not in protected][: max(len(scheduled) - limit, 0)]
    older += [path for path in complete_checkpoints(folder) if path not in scheduled and path.name not in protected]
    for path in older:
        (path / COMPLETE).unlink()  # first, so that half a checkpoint is never taken for a whole one
        shutil.rmtree(path, ignore_errors=True)
