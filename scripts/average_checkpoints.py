"""Make one model of the mean of several checkpoints, as the paper did (section 6.1).

The last five of a run:

    vanilla-average-checkpoints --run runs/demo --last 5 --output_dir runs/demo/mean

Any checkpoints of one model, by name:

    vanilla-average-checkpoints --checkpoints runs/demo/checkpoint-1200 runs/demo/checkpoint-1300 --output_dir mean
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.training.arguments import errors_as_sentences, key, parse_arguments


# Weights, optimizer, random numbers; what remains are configuration and tokenizers.
ONLY_FOR_TRAINING = ("*.safetensors", "*.pt", "*.pth", "*.bin", "trainer_state.json", "complete")


@dataclass
class AverageArguments:
    """What to average, and where to put it."""

    run: str | None = key(None, "Folder of a run; its last checkpoints are averaged.")
    last: int = key(5, "How many of them. The paper: 5 for the base model, 20 for the big one.")
    checkpoints: list[str] = key([], "Checkpoints by name, in place of a run.")
    output_dir: str = key("mean", "Folder for the mean, as `from_pretrained` reads it.")
    overwrite: bool = key(False, "Replace what is already there.")

    def __post_init__(self):
        if bool(self.run) == bool(self.checkpoints):
            raise ValueError("Give either --run or --checkpoints: what is to be averaged?")
        if self.last < 1:
            raise ValueError(f"--last {self.last}: average at least one checkpoint.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([AverageArguments], __doc__, argv)
        paths = average_checkpoints(options)
        print(f"mean of {len(paths)} checkpoints ({paths[0].name} to {paths[-1].name}) in {options.output_dir}")


def average_checkpoints(options: AverageArguments) -> list[Path]:
    """Writes the mean with the configuration and tokenizer of the last checkpoint; returns what was averaged."""
    from safetensors.torch import save_file

    from vanilla_transformer.atomic_writes import whole_folder
    from vanilla_transformer.training.averaging import WEIGHTS, average, checkpoints, load_states

    paths = [Path(path) for path in options.checkpoints] or checkpoints(options.run)[-options.last :]
    if not paths:
        raise ValueError(f"{options.run} has no whole checkpoint.")
    state = average(load_states(paths))
    with whole_folder(options.output_dir, known_by="config.json", overwrite=options.overwrite) as folder:
        shutil.copytree(paths[-1], folder, ignore=shutil.ignore_patterns(*ONLY_FOR_TRAINING), dirs_exist_ok=True)
        save_file(state, folder / WEIGHTS, metadata={"format": "pt"})
    return paths


if __name__ == "__main__":
    main()
