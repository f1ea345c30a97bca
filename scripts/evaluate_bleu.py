"""Score translations: sacreBLEU, the paper's BLEU, tokenised BLEU, chrF and TER, each with its signature.

A model on the files data/test.en + data/test.de, decoded with its own settings, or the paper's if it has none:

    vanilla-evaluate-bleu --model runs/demo/model --test_files data/test --output_dir runs/demo/evaluation

On a corpus of the Hub or the built-in one; any translation model of transformers works:

    vanilla-evaluate-bleu --model runs/demo/model --dataset demo --output_dir evaluation_demo

Existing translations, one a line, without a model:

    vanilla-evaluate-bleu --hypotheses out.de --test_files data/test --output_dir evaluation

Is one system better than another? By paired bootstrap:

    vanilla-evaluate-bleu --hypotheses out.de --baseline_hypotheses older.de --test_files data/test --output_dir both

Tokenised, lower-cased text, as Multi30k results are published:

    vanilla-evaluate-bleu --hypotheses out.tok.de --test_files data/test.tok --tokenized --lowercase --output_dir tok

The output folder holds results.json, hypotheses.txt and bleu_by_length.png.
"""

import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from vanilla_transformer import Translator
from vanilla_transformer.atomic_writes import whole_folder, write_json, write_lines
from vanilla_transformer.decoding_options import with_defaults
from vanilla_transformer.training.arguments import (
    CorpusArguments,
    DecodingArguments,
    LoadingArguments,
    errors_as_sentences,
    key,
    parse_arguments,
)
from vanilla_transformer.training.corpus import load_corpus
from vanilla_transformer.training.corpus_files import lines_in_files
from vanilla_transformer.training.evaluation import score_texts, translate_texts
from vanilla_transformer.training.metrics import (
    Bucket,
    Measure,
    bleu_by_length,
    comet,
    measures,
    paired_bootstrap,
    require_comet,
    require_same_number,
)
from vanilla_transformer.training.plots import plot_bleu_by_length
from vanilla_transformer.training.run_directory import versions
from vanilla_transformer.training.standard_streams import on_terminal
from vanilla_transformer.training.tables import aligned


RESULTS, HYPOTHESES, BASELINE = "results.json", "hypotheses.txt", "baseline_hypotheses.txt"
PICTURE = "bleu_by_length.png"


@dataclass
class EvaluationArguments:
    """What to score, and how."""

    model: str | None = key(None, "Folder of the model, or its name on the Hub: this one, MarianMT, T5 ...")
    hypotheses: str | None = key(None, "File with translations to score, one a line, instead of --model.")
    baseline_model: str | None = key(
        None, "A model to compare with. Decoding options apply to both models; defaults are the settings of each."
    )
    baseline_hypotheses: str | None = key(None, "File with translations to compare with, instead of --baseline_model.")
    bootstrap_samples: int = key(1000, "Samples of the paired bootstrap.")

    tokenized: bool = key(False, "The text is already tokenised: paper_bleu and tokenized_bleu do not tokenise it.")
    lowercase: bool = key(False, "Lower-case the text for tokenized_bleu only.")
    sacrebleu_tokens: Literal["13a", "intl", "zh", "char"] = key("13a", "Tokenisation of sacrebleu.")
    length_bounds: list[int] = key([10, 20, 30, 40, 50], "Source lengths in words that separate the length buckets.")
    comet: str | None = key(
        None, "Compute COMET too: path of a checkpoint, or a name to download such as Unbabel/wmt22-comet-da."
    )

    output_dir: str = key("evaluation", "Folder for scores, translations and the picture.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")

    def __post_init__(self) -> None:
        if bool(self.model) == bool(self.hypotheses):
            raise ValueError("Give either --model or --hypotheses: the translations to score.")
        if self.baseline_model and self.baseline_hypotheses:
            raise ValueError("Give either --baseline_model or --baseline_hypotheses: there is one comparison.")
        if self.bootstrap_samples < 1:
            raise ValueError(f"--bootstrap_samples {self.bootstrap_samples}: give at least 1, better 1000.")
        if self.length_bounds[:1] < [1] or any(left >= right for left, right in pairwise(self.length_bounds)):
            raise ValueError(f"--length_bounds {self.length_bounds}: give ascending numbers from 1 on, like 10 20 30.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        types = [EvaluationArguments, DecodingArguments, LoadingArguments, CorpusArguments]
        options, decoding, loading, corpus = parse_arguments(types, __doc__, argv)
        print(readable(evaluate(options, decoding, loading, corpus)))
        print(f"\nall files are in {options.output_dir}")


def evaluate(
    options: EvaluationArguments, decoding: DecodingArguments, loading: LoadingArguments, corpus: CorpusArguments
) -> dict[str, Any]:
    """Translates if a model is given, scores, and writes the output folder; returns the content of results.json."""
    if options.comet:
        require_comet()  # before hours of translation
    _require_options_with_effect(options, decoding, loading)
    made_of = (RESULTS, HYPOTHESES, BASELINE, PICTURE)
    with whole_folder(options.output_dir, made_of=made_of, overwrite=options.overwrite) as folder:
        pairs = list(load_corpus(corpus, splits=("test",))["test"])
        sources, references = ([pair[side] for pair in pairs] for side in ("source", "target"))
        system = translations(options.model, options.hypotheses, sources, decoding, loading)
        baseline = None
        if options.baseline_model or options.baseline_hypotheses:
            baseline = translations(options.baseline_model, options.baseline_hypotheses, sources, decoding, loading)
            write_lines(folder / BASELINE, baseline.texts)
        write_lines(folder / HYPOTHESES, system.texts)
        results = {
            **scores(sources, system, references, baseline, options, corpus),
            **description(options, loading, corpus, len(pairs)),
        }
        plot_bleu_by_length([Bucket(**bucket) for bucket in results["by_source_length"]], folder / PICTURE)
        write_json(folder / RESULTS, results)
    return results


def _require_options_with_effect(
    options: EvaluationArguments, decoding: DecodingArguments, loading: LoadingArguments
) -> None:
    uses_model = options.model or options.baseline_model
    if not uses_model and (decoding, loading) != (DecodingArguments(), LoadingArguments()):
        raise ValueError("Options of decoding and loading have no effect on translations from files: leave them out.")


class Translations(NamedTuple):
    """Translations of all sources, one line each, and the settings they were decoded with (`None` for a file)."""

    texts: list[str]
    decoding: dict[str, Any] | None


def translations(
    model: str | None,
    file: str | None,
    sources: list[str],
    decoding: DecodingArguments,
    loading: LoadingArguments,
) -> Translations:
    """Reads the translations from a file, or makes them with a model."""
    if file:
        texts = list(lines_in_files([file]))
        require_same_number(texts, sources, f"lines in {file}")
        return Translations(texts, None)
    assert model is not None  # the options give one of the two
    translator = Translator.from_pretrained(model, **vars(loading))
    settings = with_defaults(translator.model.generation_config, **vars(decoding))
    return Translations(translate_texts(translator, sources, progress=on_terminal(sys.stderr), **settings), settings)


# --- scores ---


def scores(
    sources: list[str],
    system: Translations,
    references: list[str],
    baseline: Translations | None,
    options: EvaluationArguments,
    corpus: CorpusArguments,
) -> dict[str, Any]:
    """All scores, as results.json holds them."""
    settings = {
        "target_lang": corpus.target_lang,
        "tokenized": options.tokenized,
        "lowercase": options.lowercase,
        "sacrebleu_tokens": options.sacrebleu_tokens,
    }
    metrics = measures(**settings)
    results: dict[str, Any] = score_texts(system.texts, references, **settings)
    if options.comet:
        results["comet"] = comet(options.comet, sources, system.texts, references)._asdict()
    buckets = bleu_by_length(sources, system.texts, references, options.length_bounds, metrics["sacrebleu"])
    results["by_source_length"] = [bucket._asdict() for bucket in buckets]
    if baseline is not None:
        results["against_baseline"] = comparisons(system, baseline, references, metrics, options.bootstrap_samples)
    results["decoding"] = system.decoding
    if baseline is not None and baseline.decoding:
        results["baseline_decoding"] = baseline.decoding
    return results


def comparisons(
    system: Translations, baseline: Translations, references: list[str], metrics: dict[str, Measure], samples: int
) -> dict[str, Any]:
    """The paired bootstrap of each metric."""
    return {
        name: paired_bootstrap(system.texts, baseline.texts, references, metric, samples)._asdict()
        for name, metric in metrics.items()
    }


def description(
    options: EvaluationArguments, loading: LoadingArguments, corpus: CorpusArguments, sentences: int
) -> dict[str, Any]:
    """What was scored, for readers of results.json."""
    uses_model = options.model or options.baseline_model
    corpus_fields = ("dataset", "dataset_config", "test_split") if corpus.dataset else ("test_files",)
    names = ("model", "hypotheses", "baseline_model", "baseline_hypotheses")
    return {
        **{name: getattr(options, name) for name in names if getattr(options, name)},
        "loading": vars(loading) if uses_model else None,
        "corpus": {name: getattr(corpus, name) for name in (*corpus_fields, "source_lang", "target_lang")},
        "sentences": sentences,
        "versions": versions("sacremoses", "unbabel-comet"),
    }


# --- printed tables ---


def readable(results: dict[str, Any]) -> str:
    """The scores as tables."""
    metrics = {name: score for name, score in results.items() if isinstance(score, dict) and "signature" in score}
    tables: list[list[tuple[str, ...]]] = [
        [
            (f"{results['sentences']:,} sentences", "score", "signature"),
            *((name, f"{score['score']:.2f}", score["signature"]) for name, score in metrics.items()),
        ],
        [("words of the source", "sacrebleu", "sentences"), *map(_bucket_row, results["by_source_length"])],
    ]
    if "against_baseline" in results:
        rows = [_comparison_row(name, comparison) for name, comparison in results["against_baseline"].items()]
        tables.append([("paired bootstrap", "system", "baseline", "p-value", "significant (p < 0.05)"), *rows])
    return "\n\n".join(map(aligned, tables))


def _bucket_row(bucket: dict[str, Any]) -> tuple[str, ...]:
    return Bucket(**bucket).label, f"{bucket['sacrebleu']:.2f}", f"{bucket['sentences']:,}"


def _comparison_row(name: str, comparison: dict[str, Any]) -> tuple[str, ...]:
    system = f"{comparison['system']:.2f} ± {comparison['interval']:.2f}"
    baseline = f"{comparison['baseline']:.2f} ± {comparison['baseline_interval']:.2f}"
    p_value = comparison["p_value"]
    return name, system, baseline, f"{p_value:.4f}", "yes" if p_value < 0.05 else "no"


if __name__ == "__main__":
    main()
