"""Measure several models on the same text, for example a student beside its teacher.

    vanilla benchmark models --models model_cards/multi30k-en-de-tiny runs/multi30k_en_de_student/model \\
        --input multi30k/val.en --references multi30k/val.de --sentences 1000

The first model in the first backend is the reference. All translate the same lines with `Translator`. Tokenising,
searching and detokenising count; loading does not. CTranslate2 is left out if it is not installed; for models that it
does not know, give --backends torch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.scripts.benchmarks.decode import TranslationBenchmarkArguments, missing, read_text
from vanilla_transformer.scripts.benchmarks.measuring import (
    conditions,
    gpu_notes,
    seconds_of,
    set_up,
    speed_ratios,
    take_turns,
)
from vanilla_transformer.scripts.benchmarks.report import Table, report
from vanilla_transformer.training.evaluation.metrics import measure as score_of


BACKENDS = ("torch", "ctranslate2")
NOT_INSTALLED = "CTranslate2 was not measured: not installed."


@dataclass
class ModelsBenchmarkArguments(TranslationBenchmarkArguments):
    """The models, and the beams."""

    models: list[str] = key([], "The models to compare; the first is the reference.")
    num_beams: list[int] = key([1, 5], "Beam sizes to measure, with a table for each; 1 is greedy.")
    backends: list[str] = key(list(BACKENDS), f"Engines to measure: {', '.join(BACKENDS)}.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.models)) < 2 or len(set(self.models)) < len(self.models):
            raise ValueError(f"--models {' '.join(self.models)}: give two or more different models.")
        if min(self.num_beams, default=0) < 1:
            raise ValueError(f"--num_beams {self.num_beams} must be numbers of 1 or more.")
        if not self.backends or not set(self.backends) <= set(BACKENDS):
            raise ValueError(f"--backends {' '.join(self.backends)}: choose from {', '.join(BACKENDS)}.")
        if not self.measured_backends():
            raise ValueError(f"--backends {' '.join(self.backends)}: not installed. Add torch, or install it.")

    def measured_backends(self) -> list[str]:
        """The backends that are installed."""
        return [name for name in self.backends if not missing(name)]


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ModelsBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: ModelsBenchmarkArguments) -> Iterator[Table]:
    """One table for each beam size."""
    device = set_up(options)
    lines, references = read_text(options)
    translators = make_translators(options, device)
    reference = next(iter(translators))
    to_reference = "to the first"
    notes = [NOT_INSTALLED] if options.measured_backends() != options.backends else []
    for beams in options.num_beams:
        systems = {name: partial(translate_all, each, lines, beams) for name, each in translators.items()}
        yield Table(
            f"beam {beams}, {len(lines):,} sentences; {conditions(options, device)}",
            columns(to_reference, references),
            compare(systems, reference, to_reference, references, options.rounds, device),
            drawn=[to_reference],
            reference=reference,
            notes=[*notes, *gpu_notes(device)],
        )


def make_translators(options: ModelsBenchmarkArguments, device: torch.device) -> dict[str, Translator]:
    """All models in one backend, then all of them in the next."""
    where = {"device": str(device), "dtype": getattr(torch, options.dtype)}
    in_torch = {name: Translator.from_pretrained(name, backend="torch", **where) for name in options.models}
    return {
        f"{name}, {backend}": each if backend == "torch" else in_ctranslate2(each)
        for backend in options.measured_backends()
        for name, each in in_torch.items()
    }


def in_ctranslate2(translator: Translator) -> Translator:
    """The same model in CTranslate2, made in memory: nothing is written beside the model's files."""
    return Translator(translator.model, translator.tokenizer, translator.target_tokenizer, backend="ctranslate2")


def translate_all(translator: Translator, lines: list[str], num_beams: int) -> list[str]:
    return [best.text for (best,) in translator.translate(lines, num_beams=num_beams)]


def columns(to_reference: str, references: list[str]) -> dict[str, str]:
    """The columns of `compare`, with their formats."""
    speeds = {"sentences/s": "{:,.1f}", to_reference: "{:.2f}", "spread": "{0[0]:.2f}-{0[1]:.2f}"}
    return speeds | dict.fromkeys(("BLEU", "chrF") if references else (), "{:.2f}")


def compare(
    systems: Mapping[str, Callable[[], list[str]]],
    reference: str,
    to_reference: str,
    references: list[str],
    rounds: int,
    device: torch.device,
) -> dict[str, dict[str, Any]]:
    """Returns a row for each system.

    Args:
        systems: Functions that translate all lines.
        reference: The system that the others are compared with.
        to_reference: The column of the speed relative to that system.
        references: Reference translations of all lines, or none.
        rounds: Number of rounds.
        device: Where the systems run.
    """
    translations = {name: translate() for name, translate in systems.items()}  # this also warms up
    seconds = take_turns({name: partial(seconds_of, system, device) for name, system in systems.items()}, rounds)
    rows = speed_ratios(seconds, reference, to_reference)
    for name, texts in translations.items():
        rows[name]["sentences/s"] = len(texts) / median(seconds[name])
        if references:
            figures = score_of(texts, references)
            rows[name] |= {"BLEU": figures["sacrebleu"].score, "chrF": figures["chrf"].score}
    return rows


if __name__ == "__main__":
    main()
