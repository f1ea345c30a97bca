"""Make a distilled corpus: a teacher translates the sources of the training pairs, and a student learns from that.

Sequence-level distillation (Kim and Rush 2016): the teacher's translations replace the targets. They are more regular
than human ones, so a small or shallow student learns them better. The teacher is one model or an ensemble:

    vanilla distill --model runs/seed1/model runs/seed2/model --train_files data/train --output_dir data/distilled

The pairs are in data/distilled/train.en and data/distilled/train.de, beside report.json. To train the student:

    vanilla train RECIPE --dataset "" --train_files data/distilled/train --validation_files data/val

--n_best 5 writes five pairs for each source. With --closest only one of the five is written: the one with the highest
sentence BLEU against the original target. With --reverse_model, a model that translates the other way chooses among
the five best translations: it prefers those from which the source can be recovered (Yee et al. 2019). The corpus may
also be a dataset, with the options of vanilla train.

A run that was killed continues where it was when it is started again. The result is the same, byte for byte, also with
--processes 4, under torchrun, or with the same command on several computers that share the output folder.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from sacrebleu.metrics import BLEU

from vanilla_transformer.bulk_translation.corpus_translation import CorpusTranslation
from vanilla_transformer.bulk_translation.workers import WorkerArguments, is_first
from vanilla_transformer.command_line.inference_arguments import DecodingArguments
from vanilla_transformer.command_line.inference_arguments import TorchLoadingArguments as LoadingArguments
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.safe_files.atomic_writes import one_line
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.cleaning import CleaningReport, kept_pairs
from vanilla_transformer.training.data.corpus_languages import languages_of_corpus, languages_of_models
from vanilla_transformer.training.data.parallel_corpus import load_corpus
from vanilla_transformer.training.data.synthetic_corpus import (
    PairCounts,
    SynthesisArguments,
    make_corpus,
    readable_report,
    write_pairs,
)
from vanilla_transformer.training.evaluation.test_sets import score_texts


@dataclass
class DistillArguments(SynthesisArguments):
    """The teacher, and which of its translations are written."""

    n_best: int = key(1, "Translations of each source, best first; at most num_beams.")
    closest: bool = key(
        False, "Write only the one of the n_best that is closest to the original target, by sentence BLEU."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.closest and self.n_best < 2:
            raise ValueError("--closest chooses among several translations: set --n_best to 2 or more.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        types = [DistillArguments, DecodingArguments, LoadingArguments, CorpusArguments, WorkerArguments]
        options, decoding, loading, corpus, workers = parse_arguments(types, __doc__, argv)
        report = distill(options, decoding, loading, corpus, workers)
        if is_first():
            print(readable_report(report, options.output_dir))


def distill(
    options: DistillArguments,
    decoding: DecodingArguments,
    loading: LoadingArguments,
    corpus: CorpusArguments,
    workers: WorkerArguments,
) -> dict[str, Any]:
    """Translates the sources of the training pairs and writes the new pairs; returns the content of report.json."""
    if corpus.directions:
        raise ValueError("distill translates one direction at a time: give source_lang and target_lang.")
    corpus = corpus.with_languages(languages_of_models(corpus.languages, options.model, loading))
    sources = Sources(corpus)
    source_lang, target_lang = languages_of_corpus(corpus)
    return make_corpus(
        options,
        (source_lang, target_lang),
        sources,
        {"n_best": options.n_best, "source_lang": source_lang, "target_lang": target_lang, **vars(decoding)},
        loading,
        workers,
        lambda folder, translation: write_result(folder, translation, sources.pairs, options, corpus),
    )


class Sources:
    """Returns the sources of the training pairs. A copy in another process loads the corpus itself.

    Args:
        corpus: Where the pairs are.
    """

    def __init__(self, corpus: CorpusArguments):
        self.corpus = corpus

    @cached_property
    def pairs(self) -> Dataset | IterableDataset:
        return load_corpus(self.corpus, splits=("train",))["train"]

    def __call__(self) -> Iterator[str]:
        return (one_line(pair["source"]) for pair in self.pairs)

    def __getstate__(self) -> dict[str, Any]:
        return {"corpus": self.corpus}


def write_result(
    folder: Path,
    translation: CorpusTranslation,
    originals: Dataset | IterableDataset,
    options: DistillArguments,
    corpus: CorpusArguments,
) -> dict[str, Any]:
    """Writes the cleaned pairs, and returns what is to report about them."""
    cleaning, counts = CleaningReport(), PairCounts()
    pairs = counts.count(kept_pairs(distilled_pairs(translation, originals, options), corpus, cleaning))
    write_pairs(folder, languages_of_corpus(corpus), pairs)
    best = [n_best[0] for n_best in _n_best_lists(translation, options.n_best)]
    bleu = score_texts(best, [pair["target"] for pair in originals], names=("sacrebleu",))["sacrebleu"]
    return {
        "cleaning": cleaning.as_dict(),
        "mean_words": counts.mean_words(),
        "bleu_with_originals": {"score": bleu["score"], "signature": bleu["signature"]},
    }


def distilled_pairs(
    translation: CorpusTranslation, originals: Dataset | IterableDataset, options: DistillArguments
) -> Iterator[dict[str, str]]:
    """Yields each source with its translations, or with the one that is closest to the original target."""
    for pair, n_best in zip(originals, _n_best_lists(translation, options.n_best), strict=True):
        if options.closest:
            n_best = [closest(n_best, pair["target"])]
        for text in n_best:
            yield {"source": pair["source"], "target": text}


def closest(translations: Sequence[str], original: str) -> str:
    """Returns the translation with the highest sentence BLEU against the original."""
    bleu = BLEU(effective_order=True)
    return max(translations, key=lambda translation: bleu.sentence_score(translation, [original]).score)


def _n_best_lists(translation: CorpusTranslation, number: int) -> Iterator[list[str]]:
    lines = translation.lines()
    while n_best := list(islice(lines, number)):
        yield n_best


if __name__ == "__main__":
    main()
