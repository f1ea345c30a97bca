"""Score translations: sacreBLEU, BLEU of split compounds, tokenised BLEU, chrF(++) and TER, each with its signature.

A model on the files data/test.en + data/test.de, decoded with its own settings, or the paper's if it has none:

    vanilla evaluate --model runs/demo/model --test_files data/test --output_dir runs/demo/evaluation

On a corpus of the Hub or the built-in one; any translation model of transformers works:

    vanilla evaluate --model runs/demo/model --dataset demo --output_dir evaluation_demo

The languages are those that the model records. Existing translations, one a line, have no model to tell them:

    vanilla evaluate --hypotheses out.de --test_files data/test --source_lang en --target_lang de

Several test sets, and a second reference for one of them; each set has a subfolder:

    vanilla evaluate --model runs/mine/model --test_sets news=data/news talks=data/talks \\
        --references news=data/news.second.de

Test sets by sacreBLEU's names, which are downloaded once:

    vanilla evaluate --model runs/mine/model --test_sets sacrebleu:wmt14/en-de sacrebleu:wmt19/en-de

Is one system better than another? By paired bootstrap:

    vanilla evaluate --model runs/new/model --baseline_model runs/old/model --test_files data/test

Tokenised, lower-cased text, as Multi30k results are published:

    vanilla evaluate --model runs/mine/model --test_files data/test.tok --tokenized --lowercase

How much is lost in capitals, without the final stop, with typos? The same test set in these forms, with a picture:

    vanilla evaluate --model runs/mine/model --test_files data/test --robustness

Several models are an ensemble, which decodes with the mean of their probabilities:

    vanilla evaluate --model runs/seed1/model runs/seed2/model --test_files data/test --output_dir ensemble

A model with several directions is evaluated in all of them, or in those given with --directions; each has a subfolder:

    vanilla evaluate --model runs/many/model --test_files "data/test.{source}-{target}" --output_dir evaluation

Then directions.json has all scores and their mean, and directions.png is a heat map, source by target.

The output folder holds results.json, hypotheses.txt and bleu_by_length.png. vanilla compare shows several
such folders in one table and one picture.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vanilla_transformer import Translator
from vanilla_transformer.command_line.inference_arguments import DecodingArguments
from vanilla_transformer.command_line.inference_arguments import TorchLoadingArguments as LoadingArguments
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.languages import Directions, Languages, fitting_directions, load_directions
from vanilla_transformer.models.searches import options_of
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_json, write_lines
from vanilla_transformer.safe_files.input_files import lines_in_files
from vanilla_transformer.safe_files.standard_streams import on_terminal
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.augmentation import Pair
from vanilla_transformer.training.data.corpus_files import require_language
from vanilla_transformer.training.data.corpus_languages import languages_of_corpus, languages_of_models, of_direction
from vanilla_transformer.training.data.parallel_corpus import load_corpus, references_of
from vanilla_transformer.training.evaluation.metrics import (
    Bucket,
    Measure,
    Reference,
    bleu_by_length,
    measures,
    paired_bootstrap,
    require_same_number,
)
from vanilla_transformer.training.evaluation.results import RESULTS, figures_of
from vanilla_transformer.training.evaluation.robustness import CLEAN, measure_robustness
from vanilla_transformer.training.evaluation.test_sets import (
    mean_figures,
    rows_by_direction,
    sacrebleu_tokens,
    score_texts,
    translate_texts,
)
from vanilla_transformer.training.reports.plots import Bars, plot_bars, plot_bleu_by_length, plot_directions
from vanilla_transformer.training.reports.tables import aligned
from vanilla_transformer.training.run_folder.run_directory import versions


HYPOTHESES, BASELINE = "hypotheses.txt", "baseline_hypotheses.txt"
PICTURE, ROBUSTNESS = "bleu_by_length.png", "robustness.png"
ALL_DIRECTIONS, HEAT_MAP = "directions.json", "directions.png"


@dataclass
class EvaluationArguments:
    """What to score, and how."""

    model: list[str] = key(
        [], "Folder of the model, or its name on the Hub: this one, MarianMT, T5 ... Several are an ensemble."
    )
    hypotheses: str | None = key(None, "File with translations to score, one a line, instead of --model.")
    baseline_model: list[str] = key(
        [], "A model to compare with. Decoding options apply to both models; defaults are the settings of each."
    )
    baseline_hypotheses: str | None = key(None, "File with translations to compare with, instead of --baseline_model.")
    bootstrap_samples: int = key(1000, "Samples of the paired bootstrap.")

    tokenized: bool = key(False, "The text is already tokenised: compound_bleu and tokenized_bleu do not tokenise it.")
    lowercase: bool = key(False, "Lower-case the text for tokenized_bleu only.")
    sacrebleu_tokens: Literal["auto", "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char"] = key(
        "auto", "Tokenisation of sacrebleu; auto: sacreBLEU's own for Chinese, Japanese and Korean, else 13a."
    )
    robustness: bool = key(False, "Also translate the test set in the forms that people type: capitals, typos, ...")
    zero_shot: bool = key(False, "Allow a direction that the model was not trained on.")
    length_bounds: list[int] = key([10, 20, 30, 40, 50], "Source lengths in words that separate the length buckets.")

    output_dir: str = key("evaluation", "Folder for scores, translations and the picture.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")

    def __post_init__(self) -> None:
        if bool(self.model) == bool(self.hypotheses):
            raise ValueError("Give either --model or --hypotheses: the translations to score.")
        if self.robustness and not self.model:
            raise ValueError("--robustness translates the test set in other forms: give --model.")
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
        results = evaluate(options, decoding, loading, corpus)
        if len(results) > 1 and all("direction" in result for result in results.values()):
            print(table_of_directions(results))
        else:
            for name, result in results.items():
                print(*([f"\n=== {name} ==="] if len(results) > 1 else []), readable(result), sep="\n")
        print(f"\nall files are in {options.output_dir}")


def evaluate(
    options: EvaluationArguments, decoding: DecodingArguments, loading: LoadingArguments, corpus: CorpusArguments
) -> dict[str, dict[str, Any]]:
    """Translates if a model is given, scores, and writes the output folder; returns the results of each test set.

    One test set is written into the folder itself, several into a subfolder each, and so for several directions.
    """
    _require_options_with_effect(options, decoding, loading)
    if corpus.streaming:
        raise ValueError("streaming is for training, and a test set is read at once: leave it out.")
    directions = chosen_directions(options, loading, corpus)
    if len(directions) > 1 and (options.hypotheses or options.baseline_hypotheses):
        raise ValueError("Translations in a file belong to one direction: give source_lang and target_lang.")
    corpus = corpus.with_languages(directions[0])
    if len(directions) > 1:
        several = list(map(str, directions))
        corpus = replace(corpus, source_lang=None, target_lang=None, directions=several)
    for each in directions:  # says now what it lacks, not after the translation
        sacrebleu_tokens(each.target, options.sacrebleu_tokens)
    names = ("test", *corpus.further_test_sets)
    subfolders = [*names, *(_subfolder(str(direction), name) for direction in directions for name in ("", *names))]
    made_of = (RESULTS, HYPOTHESES, BASELINE, PICTURE, ROBUSTNESS, ALL_DIRECTIONS, HEAT_MAP, *subfolders)
    with whole_folder(options.output_dir, made_of=made_of, overwrite=options.overwrite) as folder:
        test_sets = load_corpus(corpus, splits=("test",)).splits
        if len(test_sets) > 1 and (options.hypotheses or options.baseline_hypotheses):
            raise ValueError("Translations in a file belong to one test set: give --test_files or one of --test_sets.")
        models = (options.model, options.baseline_model)
        systems = [Translator.from_pretrained(model, **vars(loading)) if model else None for model in models]
        results = {}
        for name, dataset in test_sets.items():
            set_name = name if len(test_sets) > 1 else ""
            by_direction = rows_by_direction(dataset) or {"": np.arange(len(dataset))}
            for direction, rows in by_direction.items():
                subfolder = _subfolder(direction, set_name)
                one = of_direction(corpus, Languages.parse(direction) if direction else directions[0])
                pairs = list(dataset.select(rows))
                result = evaluate_set(name, pairs, folder / subfolder, systems, options, decoding, loading, one)
                results[subfolder or name] = {**result, **({"direction": direction} if direction else {})}
        if len(directions) > 1 and len(test_sets) == 1:
            scores_by_direction = {name: figures_of(result) for name, result in results.items()}
            means = mean_figures(scores_by_direction)
            write_json(folder / ALL_DIRECTIONS, {"mean": means, "directions": scores_by_direction})
            plot_directions(
                {Languages.parse(name): each["sacrebleu"]["score"] for name, each in scores_by_direction.items()},
                folder / HEAT_MAP,
            )
    return results


def chosen_directions(options: EvaluationArguments, loading: LoadingArguments, corpus: CorpusArguments) -> Directions:
    """The directions to evaluate: those given, or all of the model that have the given languages."""
    if corpus.directions:
        return corpus.all_directions
    if options.zero_shot and corpus.languages:
        return (corpus.languages,)
    models = (*options.model, *options.baseline_model)
    where = {"revision": loading.revision, "trust_remote_code": loading.trust_remote_code}
    for model in models:
        fitting = fitting_directions(load_directions(model, **where), corpus.languages)
        if len(fitting) > 1:
            return tuple(fitting)
    return (languages(options, loading, corpus),)


def _subfolder(direction: str, test_set: str) -> str:
    return ".".join(filter(None, (direction, test_set)))


def evaluate_set(
    name: str,
    pairs: list[dict[str, str]],
    folder: Path,
    systems: Sequence[Translator | None],
    options: EvaluationArguments,
    decoding: DecodingArguments,
    loading: LoadingArguments,
    corpus: CorpusArguments,
) -> dict[str, Any]:
    """Scores one test set and writes its files; returns the content of results.json."""
    sources, targets = ([pair[side] for pair in pairs] for side in ("source", "target"))
    references = references_of(corpus, name, targets)
    direction = {"source_lang": corpus.source_lang, "target_lang": corpus.target_lang, "zero_shot": options.zero_shot}
    system = translations(systems[0], options.hypotheses, sources, decoding, direction)
    baseline = None
    if options.baseline_model or options.baseline_hypotheses:
        baseline = translations(systems[1], options.baseline_hypotheses, sources, decoding, direction)
        write_lines(folder / BASELINE, baseline.texts)
    write_lines(folder / HYPOTHESES, system.texts)
    results = {
        **scores(sources, system, references, baseline, options, corpus),
        **description(name, options, loading, corpus, len(pairs)),
    }
    if options.robustness:
        results["robustness"] = measure_robustness(
            [Pair(*pair) for pair in zip(sources, targets, strict=True)],
            lambda texts: translations(systems[0], None, texts, decoding, direction).texts,
            sacrebleu_tokens=sacrebleu_tokens(corpus.target_lang, options.sacrebleu_tokens),
        )
        bleu = {name: figure["lowercase"] for name, figure in results["robustness"].items()}
        plot_bars([Bars("", "sacreBLEU without case", bleu, {}, "{:.1f}", reference=CLEAN)], folder / ROBUSTNESS)
    buckets = [Bucket(**bucket) for bucket in results["by_source_length"]]
    plot_bleu_by_length({"system": buckets}, folder / PICTURE)
    write_json(folder / RESULTS, results)
    return results


def _require_options_with_effect(
    options: EvaluationArguments, decoding: DecodingArguments, loading: LoadingArguments
) -> None:
    uses_model = options.model or options.baseline_model
    if not uses_model and (decoding, loading) != (DecodingArguments(), LoadingArguments()):
        raise ValueError("Options of decoding and loading have no effect on translations from files: leave them out.")


def languages(options: EvaluationArguments, loading: LoadingArguments, corpus: CorpusArguments) -> Languages:
    """The languages of the text: those given, or those of the models. They must not contradict each other."""
    agreed = languages_of_models(corpus.languages, (*options.model, *options.baseline_model), loading)
    agreed = Languages(*languages_of_corpus(corpus.with_languages(agreed)))
    for file in filter(None, (options.hypotheses, options.baseline_hypotheses)):
        require_language(file, agreed.target)
    return agreed


class Translations(NamedTuple):
    """Translations of all sources, one line each, and the settings they were decoded with (`None` for a file)."""

    texts: list[str]
    decoding: dict[str, Any] | None


def translations(
    translator: Translator | None,
    file: str | None,
    sources: list[str],
    decoding: DecodingArguments,
    direction: dict[str, Any],
) -> Translations:
    """Reads the translations from a file, or makes them with a model."""
    if file:
        texts = list(lines_in_files([file]))
        require_same_number(texts, sources, f"lines in {file}")
        return Translations(texts, None)
    assert translator is not None  # the options give one of the two
    settings = asdict(options_of(translator.model, **vars(decoding)))
    texts = translate_texts(translator, sources, progress=on_terminal(sys.stderr), **direction, **settings)
    return Translations(texts, settings)


# --- scores ---


def scores(
    sources: list[str],
    system: Translations,
    references: list[Reference],
    baseline: Translations | None,
    options: EvaluationArguments,
    corpus: CorpusArguments,
) -> dict[str, Any]:
    """All scores, as results.json holds them."""
    settings: dict[str, Any] = {
        "target_lang": corpus.target_lang,
        "tokenized": options.tokenized,
        "lowercase": options.lowercase,
        "sacrebleu_tokens": sacrebleu_tokens(corpus.target_lang, options.sacrebleu_tokens),
    }
    metrics = measures(**settings)
    results: dict[str, Any] = score_texts(system.texts, references, **settings)
    results["lengths"] = lengths(system.texts, references)
    buckets = bleu_by_length(sources, system.texts, references, options.length_bounds, metrics["sacrebleu"])
    results["by_source_length"] = [bucket._asdict() for bucket in buckets]
    if baseline is not None:
        results["against_baseline"] = comparisons(system, baseline, references, metrics, options.bootstrap_samples)
    results["decoding"] = system.decoding
    if baseline is not None and baseline.decoding:
        results["baseline_decoding"] = baseline.decoding
    return results


def lengths(hypotheses: list[str], references: list[Reference]) -> dict[str, float]:
    """Words of the translations for each word of the (first) references, and the share of words that repeat the one
    before, which models that write all words at once are prone to."""
    first = [reference if isinstance(reference, str) else reference[0] for reference in references]
    words, reference_words = ([line.split() for line in lines] for lines in (hypotheses, first))
    return {
        "ratio": sum(map(len, words)) / max(sum(map(len, reference_words)), 1),
        "repeated_words": repeated_words(words),
        "repeated_words_of_references": repeated_words(reference_words),
    }


def repeated_words(lines: list[list[str]]) -> float:
    repeated = sum(left == right for line in lines for left, right in pairwise(line))
    return repeated / max(sum(map(len, lines)), 1)


def comparisons(
    system: Translations,
    baseline: Translations,
    references: list[Reference],
    metrics: dict[str, Measure],
    samples: int,
) -> dict[str, Any]:
    """The paired bootstrap of each metric."""
    return {
        name: paired_bootstrap(system.texts, baseline.texts, references, metric, samples)._asdict()
        for name, metric in metrics.items()
    }


def description(
    name: str, options: EvaluationArguments, loading: LoadingArguments, corpus: CorpusArguments, sentences: int
) -> dict[str, Any]:
    """What was scored, for readers of results.json."""
    uses_model = options.model or options.baseline_model
    corpus_fields = ("dataset", "dataset_config", "test_split") if corpus.dataset else ("test_files",)
    test_set = {field: getattr(corpus, field) for field in corpus_fields}
    if name in corpus.further_test_sets:
        test_set = {"test_set": name, "test_files": corpus.files(name)}
    if more := corpus.further_references.get(name):
        test_set["references"] = more
    names = ("model", "hypotheses", "baseline_model", "baseline_hypotheses")
    return {
        **{option: _one_or_all(getattr(options, option)) for option in names if getattr(options, option)},
        "loading": vars(loading) if uses_model else None,
        "corpus": {**test_set, "source_lang": corpus.source_lang, "target_lang": corpus.target_lang},
        "sentences": sentences,
        "versions": versions("sacremoses"),
    }


def _one_or_all(value: str | list[str]) -> str | list[str]:
    """Returns one model by its name, and an ensemble as a list."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


# --- printed tables ---


def table_of_directions(results: dict[str, dict[str, Any]]) -> str:
    """The scores of all directions, and their means."""
    scores_by_direction = {name: figures_of(result) for name, result in results.items()}
    rows = {**scores_by_direction, "mean": mean_figures(scores_by_direction)}
    names = list(rows["mean"])
    cells = [["", *names]]
    for name, figures in rows.items():
        cells.append([name, *(f"{figures[each]['score']:.2f}" if each in figures else "" for each in names)])
    signatures = dict.fromkeys(each["sacrebleu"]["signature"] for each in scores_by_direction.values())
    return "\n".join(
        [aligned(cells, numbers_right=True), "", *(f"sacrebleu: {signature}" for signature in signatures)]
    )


def readable(results: dict[str, Any]) -> str:
    """The scores as tables."""
    tables: list[list[tuple[str, ...]]] = [
        [
            (f"{results['sentences']:,} sentences", "score", "signature"),
            *((name, f"{score['score']:.2f}", score["signature"]) for name, score in figures_of(results).items()),
        ],
        [("words of the source", "sacrebleu", "sentences"), *map(_bucket_row, results["by_source_length"])],
        _length_rows(results["lengths"]),
    ]
    if "against_baseline" in results:
        rows = [_comparison_row(name, comparison) for name, comparison in results["against_baseline"].items()]
        tables.append([("paired bootstrap", "system", "baseline", "p-value", "significant (p < 0.05)"), *rows])
    if "robustness" in results:
        rows = [
            (name, f"{each['score']:.2f}", f"{each['lowercase']:.2f}", f"{each['lost']:.0%}")
            for name, each in results["robustness"].items()
        ]
        tables.append([("form of the text", "sacrebleu", "without case", "lost"), *rows])
    return "\n\n".join(map(aligned, tables))


def _length_rows(lengths: dict[str, float]) -> list[tuple[str, ...]]:
    repeated, expected = lengths["repeated_words"], lengths["repeated_words_of_references"]
    return [
        ("words for each word of the references", f"{lengths['ratio']:.3f}"),
        ("words that repeat the one before", f"{repeated:.2%} (references: {expected:.2%})"),
    ]


def _bucket_row(bucket: dict[str, Any]) -> tuple[str, ...]:
    return Bucket(**bucket).label, f"{bucket['sacrebleu']:.2f}", f"{bucket['sentences']:,}"


def _comparison_row(name: str, comparison: dict[str, Any]) -> tuple[str, ...]:
    system = f"{comparison['system']:.2f} ± {comparison['interval']:.2f}"
    baseline = f"{comparison['baseline']:.2f} ± {comparison['baseline_interval']:.2f}"
    p_value = comparison["p_value"]
    return name, system, baseline, f"{p_value:.4f}", "yes" if p_value < 0.05 else "no"


if __name__ == "__main__":
    main()
