"""What every topic shares: its options, and what it returns."""

from dataclasses import dataclass
from typing import TypeVar

from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.panels import Picture


T = TypeVar("T")


@dataclass
class ExplainArguments:
    """What is kept, and how long the trainings are."""

    output_dir: str = key("runs/explain", "Folder for TOPIC.png and TOPIC.json, the figures that the picture shows.")
    overwrite: bool = key(False, "Replace the picture and the figures of a topic if they exist.")
    runs_dir: str = key("runs/explain/trainings", "Folder for the trained models. Finished ones are used again.")
    updates: int = key(400, "Updates of each training.")
    quick: bool = key(False, "Small sizes and 4 updates: a try in seconds, whose trainings show nothing.")
    rounds: int = key(3, "Rounds of each measurement of time; the median is shown.")
    threads: int = key(1, "Threads of torch.")

    def __post_init__(self) -> None:
        for name in ("updates", "rounds", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")
        if self.quick:
            self.updates, self.rounds = 4, 1

    def choose(self, full: T, *, quick: T) -> T:
        """Returns a size for the whole measurement, or a smaller one with --quick."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Explanation:
    """What a topic found.

    Args:
        tables: The figures, to print and to keep.
        pictures: One picture, sometimes two.
    """

    tables: list[Table]
    pictures: list[Picture]
