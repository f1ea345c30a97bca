"""Compare what vanilla evaluate found for several systems: one table, and one picture of BLEU by sentence length.

    vanilla compare --evaluations runs/transformer/test runs/rnn/test --names Transformer RNN \\
        --output_dir runs/comparison

Evaluate all systems on the same test set and with the same --length_bounds. The output folder holds comparison.md and
bleu_by_length.png.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_text
from vanilla_transformer.training.evaluation.metrics import Bucket
from vanilla_transformer.training.evaluation.results import RESULTS, figures_of, read_results
from vanilla_transformer.training.reports.plots import plot_bleu_by_length
from vanilla_transformer.training.reports.tables import aligned


TABLE, PICTURE = "comparison.md", "bleu_by_length.png"


@dataclass
class ComparisonArguments:
    """What to compare, and where to write it."""

    evaluations: list[str] = key([], "Folders that vanilla evaluate wrote.")
    names: list[str] = key([], "A name for each; by default the folders.")
    output_dir: str = key("comparison", "Folder for the table and the picture.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")

    def __post_init__(self) -> None:
        if not self.evaluations:
            raise ValueError("Give --evaluations: the folders that vanilla evaluate wrote.")
        self.names = self.names or self.evaluations
        if len(self.names) != len(self.evaluations):
            raise ValueError(
                f"--names gives {len(self.names)} names for {len(self.evaluations)} evaluations: give one for each."
            )
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"--names {' '.join(self.names)} repeats a name: give each system its own.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ComparisonArguments], __doc__, argv)
        systems = dict(zip(options.names, map(read_evaluation, options.evaluations), strict=True))
        require_same_sentences(systems)
        buckets = {name: [Bucket(**bucket) for bucket in found["by_source_length"]] for name, found in systems.items()}
        rows = table(systems, buckets)
        with whole_folder(options.output_dir, made_of=(TABLE, PICTURE), overwrite=options.overwrite) as folder:
            write_text(folder / TABLE, markdown(rows))
            plot_bleu_by_length(buckets, folder / PICTURE)
        print(aligned(rows, numbers_right=True))
        print(f"\nall files are in {options.output_dir}")


def read_evaluation(folder: str) -> dict[str, Any]:
    """The results of one evaluation."""
    if not (Path(folder) / RESULTS).is_file():
        raise ValueError(f"{folder} has no {RESULTS}: give folders that vanilla evaluate wrote.")
    results = read_results(folder)
    if "by_source_length" not in results:
        raise ValueError(f"{folder} has no scores by sentence length: give folders that vanilla evaluate wrote.")
    return results


def require_same_sentences(systems: Mapping[str, dict[str, Any]]) -> None:
    """Refuses results whose ranges of lengths have other bounds or other numbers of sentences."""
    shapes = {
        name: [(bucket["above"], bucket["up_to"], bucket["sentences"]) for bucket in results["by_source_length"]]
        for name, results in systems.items()
    }
    first = next(iter(shapes))
    for name, shape in shapes.items():
        if shape != shapes[first]:
            raise ValueError(
                f"{first} and {name} were evaluated on other sentences, or with other --length_bounds: evaluate both "
                "in the same way."
            )


def table(systems: Mapping[str, dict[str, Any]], buckets: Mapping[str, Sequence[Bucket]]) -> list[list[str]]:
    """A row for each system: all scores of the whole test set, then sacreBLEU of each range of lengths."""
    first = next(iter(systems))
    metrics = list(figures_of(systems[first]))
    rows = [["", *metrics, *(f"{bucket.label} words" for bucket in buckets[first])]]
    for name, results in systems.items():
        scores = [f"{results[metric]['score']:.2f}" if metric in results else "-" for metric in metrics]
        rows.append([name, *scores, *(f"{bucket.sacrebleu:.1f}" for bucket in buckets[name])])
    return rows


def markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *others = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([header, f"|{'---|' * len(rows[0])}", *others]) + "\n"


if __name__ == "__main__":
    main()
