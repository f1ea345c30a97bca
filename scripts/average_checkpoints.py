"""Average the weights of several checkpoints into one model, as the paper did (section 6.1).

The last five checkpoints of a run:

    vanilla average --run runs/demo --last 5 --output_dir runs/demo/mean

Any checkpoints of the same model, by path:

    vanilla average --checkpoints runs/demo/checkpoint-1200 runs/demo/checkpoint-1300 --output_dir mean
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.safe_files.atomic_writes import whole_folder
from vanilla_transformer.training.run_folder.checkpoint_averaging import WEIGHTS, average, load_states
from vanilla_transformer.training.run_folder.checkpoints import COMPLETE, UNSCHEDULED, scheduled_checkpoints


# Weights, optimizer and random state. The other files of a checkpoint, configuration and tokenizers, are copied.
ONLY_FOR_TRAINING = ("*.safetensors", "*.pt", "*.pth", "*.bin", "trainer_state.json", COMPLETE, UNSCHEDULED)


@dataclass
class AverageArguments:
    """Which checkpoints to average, and where to write the model."""

    run: str | None = key(None, "Folder of a training run; its last checkpoints are averaged.")
    last: int = key(5, "With --run: number of checkpoints. The paper: 5 for the base model, 20 for the big one.")
    checkpoints: list[str] = key([], "Paths of checkpoints to average, instead of --run.")
    output_dir: str = key("mean", "Folder for the averaged model, as `from_pretrained` reads it.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")

    def __post_init__(self) -> None:
        if bool(self.run) == bool(self.checkpoints):
            raise ValueError("Give either --run or --checkpoints: the checkpoints to average.")
        if self.last < 1:
            raise ValueError(f"--last {self.last}: average at least one checkpoint.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([AverageArguments], __doc__, argv)
        paths = write_mean(options)
        print(f"mean of {len(paths)} checkpoints ({paths[0].name} to {paths[-1].name}) in {options.output_dir}")


def write_mean(options: AverageArguments) -> list[Path]:
    """Writes the mean, with configuration and tokenizers of the last checkpoint; returns the averaged checkpoints."""
    paths = chosen_checkpoints(options)
    state = average(load_states(paths))
    with whole_folder(options.output_dir, known_by="config.json", overwrite=options.overwrite) as folder:
        shutil.copytree(paths[-1], folder, ignore=shutil.ignore_patterns(*ONLY_FOR_TRAINING), dirs_exist_ok=True)
        save_file(state, folder / WEIGHTS, metadata={"format": "pt"})
    return paths


def chosen_checkpoints(options: AverageArguments) -> list[Path]:
    if not options.run:
        return [Path(path) for path in options.checkpoints]
    paths = scheduled_checkpoints(options.run)[-options.last :]
    if not paths:
        raise ValueError(f"{options.run} has no complete checkpoint: give the folder of a training run.")
    return paths


if __name__ == "__main__":
    main()
