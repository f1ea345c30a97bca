"""Make training pairs from monolingual text: a model writes the other side.

Back-translation (Sennrich et al. 2016): a reverse model translates text of the target language. Here a model from
German to English makes pairs for training from English to German:

    vanilla backtranslate --model runs/de_en/model --input captions.de --output_dir data/back \\
        --backend ctranslate2 --sample

The pairs are in data/back/train.en and data/back/train.de; the model records the languages. To train on them and on
three copies of the real pairs:

    vanilla train RECIPE --train_files data/train data/back/train --train_weights 3 1

Self-training: a forward model translates text of the source language.

    vanilla backtranslate --direction forward --model runs/en_de/model --input captions.en --output_dir data/forward

--sample draws each token from the model's probabilities, which suits large corpora (Edunov et al. 2018); --top_k
limits the draw to the most probable tokens. Without it, beam search writes the translations; --num_beams 1 is
greedy and fastest. --tag "<BT>" marks the sources of these pairs, so that the model can tell them from real ones
(Caswell et al. 2019). The tag is plain text: any tokenizer can read it, and text to translate later gets no tag.

With --reverse_model, a model that translates the other way chooses among the five best translations of each text. It
prefers those from which the text can be recovered (Yee et al. 2019).

A run that was killed continues where it was when it is started again. The result is the same, byte for byte, also with
--processes 4, under torchrun, or with the same command on several computers that share the output folder.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from vanilla_transformer.bulk_translation.corpus_translation import CorpusTranslation
from vanilla_transformer.bulk_translation.workers import WorkerArguments, is_first
from vanilla_transformer.command_line.inference_arguments import DecodingArguments
from vanilla_transformer.command_line.inference_arguments import TorchLoadingArguments as LoadingArguments
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.safe_files.input_files import lines_in_files
from vanilla_transformer.training.arguments.corpus_arguments import CleaningArguments
from vanilla_transformer.training.data.cleaning import CleaningReport, kept_pairs
from vanilla_transformer.training.data.corpus_files import pairs_in_files
from vanilla_transformer.training.data.corpus_languages import languages_of_models
from vanilla_transformer.training.data.corpus_mixing import copies
from vanilla_transformer.training.data.synthetic_corpus import (
    PairCounts,
    SynthesisArguments,
    make_corpus,
    readable_report,
    tagged,
    write_pairs,
)


Pairs = Iterator[dict[str, str]]


@dataclass
class BacktranslateArguments(SynthesisArguments):
    """What to translate, and what to make of it."""

    input: list[str] = key([], "Monolingual text files, one sentence a line; each may be gzipped.")
    source_lang: str | None = key(
        None, "Source language of the pairs: the suffix of their source file. By default what the model writes."
    )
    target_lang: str | None = key(
        None, "Target language of the pairs: the suffix of their target file. By default what the model reads."
    )
    direction: Literal["back", "forward"] = key(
        "back",
        "back: the text is in the target language, and the model writes the sources. forward: the text is in the "
        "source language, and the model writes the targets.",
    )

    sample: bool = key(False, "Draw translations at random instead of searching for the best.")
    top_k: int = key(0, "Draw among this many most probable tokens; 0 for all tokens. Only with --sample.")
    temperature: float = key(1.0, "Below 1, draws prefer probable tokens more. Only with --sample.")
    seed: int = key(1, "Seed of samples and of the choice among real pairs.")

    tag: str | None = key(None, 'Text before the source of each new pair, for example "<BT>".')
    real_files: list[str] = key([], "Real pairs to write before the new ones, in the formats of train_files.")
    ratio: float = key(
        1.0, "Real pairs for each new pair: real pairs are repeated, or a share of them drawn. Only with --real_files."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.input:
            raise ValueError("No text is given: set --input to one or more files.")
        if self.source_lang is not None and self.source_lang == self.target_lang:
            raise ValueError(f"source_lang and target_lang are both {self.source_lang!r}: give two languages.")
        if not self.sample and (self.top_k, self.temperature) != (0, 1.0):
            raise ValueError("--top_k and --temperature are for samples: add --sample, or leave them out.")
        if self.top_k < 0 or self.temperature <= 0:
            raise ValueError(f"top_k={self.top_k} must be at least 0 and temperature={self.temperature} above 0.")
        if self.ratio <= 0 or (self.ratio != 1.0 and not self.real_files):
            raise ValueError(f"ratio={self.ratio} must be above 0, and needs --real_files.")

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language of the pairs, after `with_languages`."""
        if self.source_lang is None or self.target_lang is None:
            raise ValueError("The model does not record its languages: set --source_lang and --target_lang.")
        return self.source_lang, self.target_lang

    def with_languages(self, loading: LoadingArguments) -> "BacktranslateArguments":
        """Returns the options with the languages that are given, or those of the models."""
        given = Languages(self.source_lang, self.target_lang)
        agreed = languages_of_models(given, self.model, loading, self.direction)
        return replace(self, source_lang=agreed.source, target_lang=agreed.target)


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        types = [BacktranslateArguments, DecodingArguments, LoadingArguments, CleaningArguments, WorkerArguments]
        options, decoding, loading, cleaning, workers = parse_arguments(types, __doc__, argv)
        report = backtranslate(options, decoding, loading, cleaning, workers)
        if is_first():
            print(readable_report(report, options.output_dir))


def backtranslate(
    options: BacktranslateArguments,
    decoding: DecodingArguments,
    loading: LoadingArguments,
    cleaning: CleaningArguments,
    workers: WorkerArguments,
) -> dict[str, Any]:
    """Translates, cleans, mixes and writes; returns the content of report.json."""
    options = options.with_languages(loading)
    if next(lines_in_files(options.input), None) is None:
        raise ValueError(f"{', '.join(options.input)} has no line: check the path.")
    return make_corpus(
        options,
        options.languages,
        partial(lines_in_files, tuple(options.input)),
        {**generation_options(options, decoding), **translated_languages(options)},
        loading,
        workers,
        lambda folder, translation: write_result(folder, translation, options, cleaning),
        seed=options.seed,
    )


def translated_languages(options: BacktranslateArguments) -> dict[str, str]:
    """Returns the languages between which the model translates, as options of `Translator.translate`."""
    source, target = options.languages if options.direction == "forward" else reversed(options.languages)
    return {"source_lang": source, "target_lang": target}


def generation_options(options: BacktranslateArguments, decoding: DecodingArguments) -> dict[str, Any]:
    """Returns the options of `Translator.translate`."""
    if not options.sample:
        return dict(vars(decoding))
    for name, value in vars(decoding).items():
        if name != "max_extra_tokens" and value is not None:
            raise ValueError(f"--{name} {value} is for searches: leave it out, or leave out --sample.")
    return {
        "sample": True,
        "top_k": options.top_k,
        "temperature": options.temperature,
        "max_extra_tokens": decoding.max_extra_tokens,
    }


def write_result(
    folder: Path, translation: CorpusTranslation, options: BacktranslateArguments, cleaning: CleaningArguments
) -> dict[str, Any]:
    """Writes the cleaned pairs, real ones first, and returns what is to report about them."""
    new_report, real_report, counts = CleaningReport(), CleaningReport(), PairCounts()
    synthetic = counts.count(kept_pairs(new_pairs(translation, options), cleaning, new_report))
    if not options.real_files:
        write_pairs(folder, options.languages, tagged(synthetic, options.tag))
        return {"cleaning": new_report.as_dict(), "mean_words": counts.mean_words()}
    synthetic_pairs = list(synthetic)
    real = list(kept_pairs(real_pairs(options), cleaning, real_report))
    if not real:
        raise ValueError(f"{', '.join(options.real_files)} has no pair to mix in: check the path.")
    chosen = copies(len(real), options.ratio * len(synthetic_pairs) / len(real), options.seed)
    mixed = chain((real[index] for index in chosen), tagged(synthetic_pairs, options.tag))
    write_pairs(folder, options.languages, mixed)
    return {
        "cleaning": new_report.as_dict(),
        "cleaning_of_real_pairs": real_report.as_dict(),
        "real_pairs_written": len(chosen),
        "mean_words": counts.mean_words(),
    }


def new_pairs(translation: CorpusTranslation, options: BacktranslateArguments) -> Pairs:
    """Yields each text with its translation."""
    for text, written in zip(lines_in_files(options.input), translation.lines(), strict=True):
        source, target = (written, text) if options.direction == "back" else (text, written)
        yield {"source": source, "target": target}


def real_pairs(options: BacktranslateArguments) -> Pairs:
    for source, target in pairs_in_files(options.real_files, *options.languages):
        yield {"source": source, "target": target}


if __name__ == "__main__":
    main()
