"""Measure a non-autoregressive model beside an autoregressive one, from text to text.

    vanilla benchmark mask_predict --model runs/multi30k_en_de_mask_predict/model \\
        --baseline model_cards/multi30k-en-de-tiny --input multi30k/val.en --references multi30k/val.de

All systems translate the same lines with `Translator`, in one run and on the same threads: tokenising, searching and
detokenising count. With batch size 1 every line is translated alone, as for a user who waits. With a larger batch size
lines are translated in file order, that many at a time. The reference is the baseline's greedy search in torch.
Helcl et al. (2022, "Non-Autoregressive Machine Translation: It's Not that Fast as it Seems") show why each of these
matters: a speed-up over a slow baseline, at batch size 1 only, or without the best engine, says little.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.scripts.benchmarks.decode import TranslationBenchmarkArguments, missing, read_text
from vanilla_transformer.scripts.benchmarks.measuring import conditions, gpu_notes, set_up
from vanilla_transformer.scripts.benchmarks.models import NOT_INSTALLED, columns, compare, in_ctranslate2
from vanilla_transformer.scripts.benchmarks.report import Table, report


REFERENCE = "baseline, greedy"
TO_REFERENCE = "to greedy"


@dataclass
class MaskPredictBenchmarkArguments(TranslationBenchmarkArguments):
    """The models, and the options of mask-predict."""

    model: str | None = key(None, "The mask_predict model.")
    baseline: str | None = key(None, "The autoregressive model, for example the teacher.")
    batch_sizes: list[int] = key([1, 32], "Lines that are translated at a time; one table for each.")
    iterations: list[int] = key([1, 4, 10], "Iterations of mask-predict.")
    length_candidates: list[int] = key([1, 5], "Length candidates of mask-predict.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.model and self.baseline):
            raise ValueError("Give --model and --baseline: the two models.")
        for name in ("batch_sizes", "iterations", "length_candidates"):
            if min(getattr(self, name), default=0) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be numbers of 1 or more.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([MaskPredictBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: MaskPredictBenchmarkArguments) -> Iterator[Table]:
    """One table for each batch size."""
    device = set_up(options)
    lines, references = read_text(options)
    translators = make_systems(options, device)
    notes = [NOT_INSTALLED] if missing("ctranslate2") else []
    for batch_size in options.batch_sizes:
        systems = {name: partial(in_batches, system, lines, batch_size) for name, system in translators.items()}
        yield Table(
            f"{options.model}; batch size {batch_size}, {len(lines):,} sentences; {conditions(options, device)}",
            columns(TO_REFERENCE, references),
            compare(systems, REFERENCE, TO_REFERENCE, references, options.rounds, device),
            drawn=[TO_REFERENCE],
            reference=REFERENCE,
            notes=[*notes, *gpu_notes(device)],
        )


def make_systems(options: MaskPredictBenchmarkArguments, device: torch.device) -> Mapping[str, Callable[..., Any]]:
    """Functions that translate a batch of lines, by name."""
    assert options.model is not None
    assert options.baseline is not None
    where = {"device": str(device), "dtype": getattr(torch, options.dtype)}
    torch_baseline = Translator.from_pretrained(options.baseline, backend="torch", **where)
    systems = {
        REFERENCE: partial(torch_baseline, num_beams=1),
        "baseline, beam 4": partial(torch_baseline, num_beams=4),
    }
    if not missing("ctranslate2"):
        engine = in_ctranslate2(torch_baseline)
        systems["baseline, CTranslate2 greedy"] = partial(engine, num_beams=1)
        systems["baseline, CTranslate2 beam 4"] = partial(engine, num_beams=4)
    model = Translator.from_pretrained(options.model, backend="torch", **where)
    for iterations in options.iterations:
        for candidates in options.length_candidates:
            name = f"mask-predict, {iterations} iterations, {candidates} lengths"
            systems[name] = partial(model, iterations=iterations, length_candidates=candidates)
    return systems


def in_batches(translate: Callable[[list[str]], list[str]], lines: list[str], batch_size: int) -> list[str]:
    """Translates lines in file order, a batch at a time."""
    return [text for batch in _batches(lines, batch_size) for text in translate(batch)]


def _batches(lines: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(lines), size):
        yield lines[start : start + size]


if __name__ == "__main__":
    main()
