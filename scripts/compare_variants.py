"""Train several variants of one model with the same budget and compare them in one table and one picture.

    vanilla variants variants
    vanilla variants variants --only scaled_dot additive rotary --max_steps 500

The recipe is an ordinary one with one more key, `variants`: a name and the config fields for each. Every other option
of vanilla train works here too. Each variant is a run of its own in OUTPUT_DIR/NAME. Finished variants are not trained
again, and interrupted ones resume, so the command can be repeated.

OUTPUT_DIR/comparison.md, comparison.json and comparison.png show BLEU on the test set, perplexity on the
validation set, training speed and number of parameters; losses.png shows how the validation loss fell, if the recipe
evaluates during training. With --seeds 1 2, every variant is trained twice.

A recipe with published perplexities of its variants, such as table3_small, also gets published.png and published.json:
our losses beside those, the correlation of ranks, and where the two disagree. With `second_seed`, variants that
disagree are trained once more. All are compared with the first variant of the recipe, and so not at all where --only
leaves that out.

    vanilla variants table3_small
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.spelling import suggestion
from vanilla_transformer.safe_files.atomic_writes import write_json, write_text
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.evaluation.results import read_results
from vanilla_transformer.training.reports.plots import Bars, plot_bars, plot_losses, read_metrics
from vanilla_transformer.training.reports.published_figures import (
    compare_with_published,
    describe,
    plot_published,
    rank_correlation,
)
from vanilla_transformer.training.reports.tables import aligned
from vanilla_transformer.training.train import train


COLUMNS = {
    "bleu": ("test BLEU", "{:.1f}"),
    "perplexity": ("perplexity, validation set", "{:.1f}"),
    "tokens_per_second": ("source tokens/s", "{:,.0f}"),
    "parameters": ("parameters", "{:,}"),
}


@dataclass
class VariantArguments:
    """What is compared."""

    variants: dict | str | None = key(
        None,
        'The variants: a name and config fields for each, for example {"rotary": {"position_encoding": "rotary"}}.',
    )
    only: list[str] = key([], "Names of the variants to train; by default all.")
    seeds: list[int] = key([], "Seeds to train each variant with, for example 1 2; by default the recipe's seed.")

    published: dict | str | None = key(None, "Perplexities that were published for the variants, by name.")
    second_seed: int | None = key(
        None, "Seed of a second training of the first variant and of those that disagree with the published figures."
    )

    def __post_init__(self) -> None:
        for option in ("variants", "published"):
            if isinstance(value := getattr(self, option), str):
                try:
                    setattr(self, option, json.loads(value))
                except json.JSONDecodeError as error:
                    raise ValueError(f"{option}={value!r} is not valid JSON ({error}).") from error
        if not isinstance(self.variants, dict) or not self.variants:
            raise ValueError("No variants are given: add the key `variants` to the recipe (see --help).")
        for name, fields in self.variants.items():
            if not isinstance(fields, dict):
                raise ValueError(f"variants: {name} must map config fields to values, not {fields!r}.")
        for name in self.only:
            if name not in self.variants:
                raise ValueError(f"--only {name}: there is no such variant{suggestion(name, self.variants)}.")

        if self.published is not None and (unknown := self.variants.keys() - self.perplexities.keys()):
            raise ValueError(f"published has no figure for {', '.join(sorted(unknown))}: add it, or leave it out.")
        if self.second_seed is not None and (self.published is None or self.seeds):
            raise ValueError(
                f"second_seed={self.second_seed} is for variants that disagree with published figures, and trained "
                "with one seed: give published and leave out seeds, or leave it out."
            )

    @property
    def perplexities(self) -> dict[str, float]:
        """The published figures."""
        return self.published if isinstance(self.published, dict) else {}

    @property
    def runs(self) -> dict[str, list[str]]:
        """The runs by name: each with the words that change the recipe."""
        assert isinstance(self.variants, dict)
        chosen = {name: fields for name, fields in self.variants.items() if not self.only or name in self.only}
        words = {name: ["--model_config", json.dumps(fields)] if fields else [] for name, fields in chosen.items()}
        return self.seeded(words, self.seeds) if self.seeds else words

    @staticmethod
    def seeded(words: dict[str, list[str]], seeds: Sequence[int]) -> dict[str, list[str]]:
        return {f"{name}-{seed}": [*words[name], "--seed", str(seed)] for name in words for seed in seeds}

    @property
    def has_reference(self) -> bool:
        """Whether there are published figures, and the first variant to compare with."""
        assert isinstance(self.variants, dict)
        return self.published is not None and next(iter(self.variants)) in (self.only or self.variants)

    def again(self, compared: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
        """The runs with `second_seed`: of variants that disagree and, if there are any, of the first one."""
        disagreeing = [name for name, row in compared.items() if row["disagrees"]]
        again = [next(iter(compared)), *disagreeing] if disagreeing else []
        return self.seeded({name: self.runs[name] for name in again}, [self.second_seed or 0])

    def variant_of(self, run: str) -> str:
        """The variant that a run trains: its name, without the seed."""
        assert isinstance(self.variants, dict)
        return run if run in self.variants else run.rpartition("-")[0]


TYPES = [VariantArguments, ModelArguments, CorpusArguments, VocabularyArguments, TranslationTrainingArguments]


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    with errors_as_sentences():
        options, *_, training = parse_arguments(TYPES, __doc__, argv)
        folder = Path(training.output_dir)
        runs = options.runs
        if not train_all(runs, argv, folder):
            return
        if options.second_seed is not None and options.has_reference:
            more = options.again(compare_published(options, runs, folder))
            if not train_all(more, argv, folder):
                return
            runs |= more
        rows = [figures(folder / name, name) for name in runs]
        plot_losses({name: folder / name / "metrics.jsonl" for name in runs}, folder / "losses.png")
        write_comparison(rows, folder)
        print(f"\n{table(rows)}\n")
        if options.has_reference:
            compared = compare_published(options, runs, folder)
            write_json(folder / "published.json", {"correlation": rank_correlation(compared), "variants": compared})
            plot_published(compared, folder / "published.png")
            print(f"{describe(compared)}\n")
        print(f"The comparison is in {folder}.")


def train_all(runs: Mapping[str, Sequence[str]], argv: Sequence[str], folder: Path) -> bool:
    """Trains runs one after the other, unless they are done. Returns whether all are finished: Ctrl-C ends it, and the
    run has said how to resume."""
    for name, words in runs.items():
        print(f"--- {name} ---")
        if not train_variant([*argv, *words], folder / name):
            return False
    return True


def compare_published(options: VariantArguments, runs: Iterable[str], folder: Path) -> dict[str, dict[str, Any]]:
    """The validation losses of finished runs beside the published figures of their variants."""
    losses: dict[str, list[float]] = {}
    for run in runs:
        losses.setdefault(options.variant_of(run), []).append(read_results(folder / run)["validation"]["loss"])
    return compare_with_published(options.perplexities, losses)


def train_variant(argv: Sequence[str], folder: Path) -> bool:
    """Trains one variant, unless that is done. Returns whether it is finished."""
    options = ["--output_dir", str(folder), "--resume_from_checkpoint", "auto"]
    _, *recipe = parse_arguments(TYPES, __doc__, [*argv, *options])
    return train(*recipe) is not None


def figures(folder: Path, name: str) -> dict[str, Any]:
    """What a finished run reached, from its own files."""
    results = read_results(folder)
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    speeds = [
        entry["train_tokens_per_second"]
        for entry in read_metrics(folder / "metrics.jsonl")
        if "train_tokens_per_second" in entry
    ]
    return {
        "variant": name,
        "bleu": results["test"]["sacrebleu"]["score"],
        "perplexity": results["validation"]["perplexity"],
        "tokens_per_second": speeds[-1] if speeds else 0.0,  # a run shorter than logging_steps has logged none
        "parameters": run["parameters"],
    }


def write_comparison(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    """Writes the comparison as JSON, as a Markdown table and as a picture."""
    write_json(folder / "comparison.json", list(rows))
    head = ["variant", *(title for title, _ in COLUMNS.values())]
    lines = [head, ["---"] * len(head), *map(cells, rows)]
    write_text(folder / "comparison.md", "".join(f"| {' | '.join(line)} |\n" for line in lines))
    panels = [
        Bars("", title, {row["variant"]: row[column] for row in rows}, {}, form, reference=rows[0]["variant"])
        for column, (title, form) in COLUMNS.items()
        if column != "parameters"
    ]
    plot_bars(panels, folder / "comparison.png")


def table(rows: Sequence[dict[str, Any]]) -> str:
    return aligned([["variant", *(title for title, _ in COLUMNS.values())], *map(cells, rows)], numbers_right=True)


def cells(row: dict[str, Any]) -> list[str]:
    return [row["variant"], *(form.format(row[column]) for column, (_, form) in COLUMNS.items())]


if __name__ == "__main__":
    main()
