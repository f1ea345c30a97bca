"""Measure translations: sacreBLEU, the paper's own BLEU, tokenised BLEU, chrF and TER, each with its signature.

A model on files data/test.en + data/test.de, decoded as its settings say or else as in the paper:

    vanilla-evaluate-bleu --model runs/demo/model --test_files data/test --output_dir runs/demo/evaluation

On a corpus of the Hub, or the built-in one; any model that translates will do:

    vanilla-evaluate-bleu --model runs/demo/model --dataset demo --output_dir evaluation_demo

Translations that are there already, one a line, without a model:

    vanilla-evaluate-bleu --hypotheses out.de --test_files data/test --output_dir evaluation

Whether one system is better than another, by paired bootstrap:

    vanilla-evaluate-bleu --hypotheses out.de --baseline_hypotheses older.de --test_files data/test --output_dir both

Tokenised, lower-cased text, as Multi30k results are published:

    vanilla-evaluate-bleu --hypotheses out.tok.de --test_files data/test.tok --tokenized --lowercase --output_dir tok

The folder then holds results.json, hypotheses.txt and bleu_by_length.png.
"""

import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from vanilla_transformer.training.arguments import (
    CorpusArguments,
    DecodingArguments,
    LoadingArguments,
    errors_as_sentences,
    key,
    parse_arguments,
)


RESULTS, HYPOTHESES, BASELINE = "results.json", "hypotheses.txt", "baseline_hypotheses.txt"
PICTURE = "bleu_by_length.png"


@dataclass
class EvaluationArguments:
    """What is measured, and how."""

    model: str | None = key(None, "Folder or name on the Hub of the model: this one, MarianMT, T5 ...")
    hypotheses: str | None = key(None, "File with translations to measure, one a line, in place of a model.")
    baseline_model: str | None = key(
        None, "A model to compare with, decoded by the same options or else its own settings."
    )
    baseline_hypotheses: str | None = key(None, "Translations to compare with, in place of a model.")
    bootstrap_samples: int = key(1000, "Samples of the paired bootstrap.")

    tokenized: bool = key(False, "The text is tokenised already: paper_bleu and tokenized_bleu take it as it is.")
    lowercase: bool = key(False, "Lower-case for tokenized_bleu (only).")
    sacrebleu_tokens: Literal["13a", "intl", "zh", "char"] = key("13a", "Tokenisation of sacrebleu.")
    length_bounds: list[int] = key([10, 20, 30, 40, 50], "Words of the source at which sentences are told apart.")
    comet: str | None = key(
        None, "Measure COMET too: path of a checkpoint, or a name to download such as Unbabel/wmt22-comet-da."
    )

    output_dir: str = key("evaluation", "Folder for figures, translations and picture.")
    overwrite: bool = key(False, "Replace an evaluation that is already there.")

    def __post_init__(self):
        if bool(self.model) == bool(self.hypotheses):
            raise ValueError("Give either --model or --hypotheses: what is to be measured?")
        if self.baseline_model and self.baseline_hypotheses:
            raise ValueError("Give either --baseline_model or --baseline_hypotheses: there is one comparison.")
        if self.bootstrap_samples < 1:
            raise ValueError(f"--bootstrap_samples {self.bootstrap_samples}: give at least 1, better 1000.")
        if self.length_bounds[:1] < [1] or any(left >= right for left, right in pairwise(self.length_bounds)):
            raise ValueError(f"--length_bounds {self.length_bounds}: give ascending numbers from 1 on, like 10 20 30.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        types = [EvaluationArguments, DecodingArguments, LoadingArguments, CorpusArguments]
        options, *others = parse_arguments(types, __doc__, argv)
        print(readable(evaluate_bleu(options, *others)))
        print(f"\neverything in {options.output_dir}")


def evaluate_bleu(
    options: EvaluationArguments, decoding: DecodingArguments, loading: LoadingArguments, corpus: CorpusArguments
) -> dict[str, Any]:
    """Translates if need be, measures, and writes the folder; returns what results.json holds."""
    from vanilla_transformer.atomic_writes import whole_folder
    from vanilla_transformer.training.corpus import load_corpus
    from vanilla_transformer.training.metrics import bleu_by_length, require_comet
    from vanilla_transformer.training.plots import plot_bleu_by_length
    from vanilla_transformer.training.run_directory import write_json

    if options.comet:
        require_comet()  # before hours of translation
    if not (options.model or options.baseline_model) and (decoding, loading) != (
        DecodingArguments(),
        LoadingArguments(),
    ):
        raise ValueError("Options of decoding and loading do nothing to translations from files: leave them out.")
    made_of = (RESULTS, HYPOTHESES, BASELINE, PICTURE)
    with whole_folder(options.output_dir, made_of=made_of, overwrite=options.overwrite) as folder:
        pairs = list(load_corpus(corpus, splits=("test",))["test"])
        sources, references = ([pair[side] for pair in pairs] for side in ("source", "target"))
        system, decoded = translations(options.model, options.hypotheses, sources, decoding, loading)
        baseline = baseline_decoded = None
        if options.baseline_model or options.baseline_hypotheses:
            baseline, baseline_decoded = translations(
                options.baseline_model, options.baseline_hypotheses, sources, decoding, loading
            )
            write_lines(folder / BASELINE, baseline)
        write_lines(folder / HYPOTHESES, system)

        by = measures_for(options, corpus)
        results = figures(sources, system, references, options, by)
        buckets = bleu_by_length(sources, system, references, options.length_bounds, by["sacrebleu"])
        results["by_source_length"] = [bucket._asdict() for bucket in buckets]
        if baseline is not None:
            results["against_baseline"] = compared(system, baseline, references, options, by)
        results["decoding"] = decoded
        if baseline_decoded:
            results["baseline_decoding"] = baseline_decoded
        results |= description(options, loading, corpus, len(pairs))
        plot_bleu_by_length(buckets, folder / PICTURE)
        write_json(folder / RESULTS, results)
    return results


def translations(
    model: str | None,
    file: str | None,
    sources: list[str],
    decoding: DecodingArguments,
    loading: LoadingArguments,
) -> tuple[list[str], dict[str, Any] | None]:
    """A translation of each source, each on one line, and how the model decoded; `None` for those from the file."""
    from vanilla_transformer import Translator
    from vanilla_transformer.atomic_writes import one_line
    from vanilla_transformer.decoding_options import with_defaults
    from vanilla_transformer.training.corpus_files import lines_in_files
    from vanilla_transformer.training.metrics import require_same_number

    if file:
        found = list(lines_in_files([file]))
        require_same_number(found, sources, f"lines in {file}")
        return found, None
    translator = Translator.from_pretrained(model, **vars(loading))
    settings = with_defaults(translator.model.generation_config, **vars(decoding))
    return [one_line(text) for text in translator(sources, progress=sys.stderr.isatty(), **settings)], settings


def write_lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


# --- figures ---


def measures_for(options: EvaluationArguments, corpus: CorpusArguments) -> dict:
    from vanilla_transformer.training.metrics import measures

    return measures(
        target_lang=corpus.target_lang,
        tokenized=options.tokenized,
        lowercase=options.lowercase,
        sacrebleu_tokens=options.sacrebleu_tokens,
    )


def figures(
    sources: list[str], system: list[str], references: list[str], options: EvaluationArguments, by: dict
) -> dict[str, Any]:
    from vanilla_transformer.training.metrics import comet

    found = {name: figure_of(system, references) for name, figure_of in by.items()}
    if options.comet:
        found["comet"] = comet(options.comet, sources, system, references)
    return {name: figure._asdict() for name, figure in found.items()}


def compared(
    system: list[str], baseline: list[str], references: list[str], options: EvaluationArguments, by: dict
) -> dict[str, Any]:
    from vanilla_transformer.training.metrics import paired_bootstrap

    samples = options.bootstrap_samples
    return {name: paired_bootstrap(system, baseline, references, each, samples)._asdict() for name, each in by.items()}


def description(
    options: EvaluationArguments, loading: LoadingArguments, corpus: CorpusArguments, sentences: int
) -> dict[str, Any]:
    """What was measured, for whoever reads results.json later."""
    from vanilla_transformer.training.run_directory import versions

    uses_model = options.model or options.baseline_model
    given = ("dataset", "dataset_config", "test_split") if corpus.dataset else ("test_files",)
    names = ("model", "hypotheses", "baseline_model", "baseline_hypotheses")
    return {
        **{name: getattr(options, name) for name in names if getattr(options, name)},
        "loading": vars(loading) if uses_model else None,
        "corpus": {name: getattr(corpus, name) for name in (*given, "source_lang", "target_lang")},
        "sentences": sentences,
        "versions": versions("sacremoses", "unbabel-comet"),
    }


# --- on the screen ---


def readable(results: dict[str, Any]) -> str:
    """The figures as tables."""
    measured = {name: found for name, found in results.items() if isinstance(found, dict) and "signature" in found}
    tables = [
        [
            (f"{results['sentences']:,} sentences", "score", "signature"),
            *((name, f"{found['score']:.2f}", found["signature"]) for name, found in measured.items()),
        ],
        [("words of the source", "sacrebleu", "sentences"), *map(_bucket_row, results["by_source_length"])],
    ]
    if "against_baseline" in results:
        rows = [_comparison_row(name, found) for name, found in results["against_baseline"].items()]
        tables.append([("paired bootstrap", "system", "baseline", "p-value", "significant (p < 0.05)"), *rows])
    return "\n\n".join(_columns(rows) for rows in tables)


def _bucket_row(bucket: dict[str, Any]) -> tuple[str, ...]:
    from vanilla_transformer.training.metrics import Bucket

    return Bucket(**bucket).label, f"{bucket['sacrebleu']:.2f}", f"{bucket['sentences']:,}"


def _comparison_row(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    system = f"{found['system']:.2f} ± {found['interval']:.2f}"
    baseline = f"{found['baseline']:.2f} ± {found['baseline_interval']:.2f}"
    return name, system, baseline, f"{found['p_value']:.4f}", "yes" if found["p_value"] < 0.05 else "no"


def _columns(rows: list[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


if __name__ == "__main__":
    main()
