"""Translate text, line by line: one output line for each input line, in the same order.

    vanilla translate "Where is the nearest train station?"                  # into every language it knows
    vanilla translate "Wo ist der Bahnhof?"                                  # German, found by itself: into English
    echo "Where is the station?" | vanilla translate --target_lang fr         # standard input, into one language
    vanilla translate --model runs/demo/model "When does the train arrive in Berlin?"
    vanilla translate --model runs/demo/model --input news.en --output news.de
    vanilla translate --model runs/demo/model --input news.en.gz --n_best 3 --scores
    vanilla translate --model runs/demo/model --input news.en --output news.de --backend ctranslate2
    vanilla translate --model runs/demo/model --input news.en --output news.de --glossary terms.tsv
    vanilla translate --model runs/demo/model --input report.txt --output report.de.txt --split_sentences
    vanilla translate --model runs/seed1/model runs/seed2/model --input news.en --output news.de   # an ensemble

The command reads a window of lines at a time, sorts them by length, translates them in batches and writes them in the
input order. Memory does not grow with the input. On a terminal, every line is translated at once. By default the
output has translations only. Three options put something and a tab before each translation, in this order: --scores
(or --n_best) the score, --confidence how sure the model is, from 0 to 1, and --alignment the links of words. There,
"0-0 2-1" joins word 2 of the input with word 1 of the translation; words and punctuation marks count, from 0.

Without --source_lang each line decides, for a model with several source languages; one or two words rarely do. Then
the model's first language is assumed, and the command says so. A line in the target language comes back unchanged.

With --n_best N every input line has N output lines, best first. With several --target_lang it has these lines for each
language, whose name and a tab come first.

Ctrl-C and SIGTERM never cut a line: the translations so far are in the output, or in <output>.partial. The same
command with --resume goes on from there:

    vanilla translate --model runs/demo/model --input news.en --output news.de --resume

A line of more than --max_source_tokens tokens is cut, with a warning that names it. With --long_texts chunk, it is
split at sentence ends, and its translations are joined.

A large corpus is translated in shards, by any number of processes, into a folder:

    vanilla translate --model runs/demo/model --input big.en.gz --output out/ --shards 64 --processes 4
    torchrun --nproc_per_node 8 -m vanilla_transformer.scripts.translate --input big.en.gz --output out/ --shards 64
    vanilla translate --model runs/demo/model --input web.parquet --text_column text --output out/ --shards 64
    vanilla translate --model runs/demo/model --input big.en.gz --output out/ --shards 64 --engine ray

The result is one file in out/: translations.txt, .jsonl or .parquet, by the format of the input, with one row for each
input row, in the same order. out/manifest.json has the ranges of the shards and what they depend on: the content of
input and model, and the options. A command that was killed loses only the shards it was translating; the same command
continues it. Another input, model or option is refused. A text file that is gzipped has a gzipped output. Tables keep
their columns and get a new one. Each job of a job array translates shards of its own, and the same command without
--only_shards joins them at the end:

    vanilla translate --model runs/demo/model --input big.en.gz --output out/ --shards 64 --only_shards 0-15
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from vanilla_transformer import Hypothesis, Translator
from vanilla_transformer.bulk_translation.corpus_translation import CorpusTranslation
from vanilla_transformer.bulk_translation.resuming import skip_finished_lines
from vanilla_transformer.bulk_translation.shard_formats import DETAILS, corpus_of, format_of, output_lines
from vanilla_transformer.bulk_translation.shards import equal_ranges
from vanilla_transformer.bulk_translation.workers import WorkerArguments, is_first, launched, translate_shards
from vanilla_transformer.command_line.inference_arguments import DecodingArguments, LoadingArguments
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.languages import LANGUAGE_NAMED, LANGUAGE_NAMES, Languages, base_of, choose_member
from vanilla_transformer.hub.saved_files import BUNDLED, EVERYDAY, is_family
from vanilla_transformer.safe_files.atomic_writes import partial_of
from vanilla_transformer.safe_files.input_files import decoded_lines, kind_of, lines_in_files
from vanilla_transformer.safe_files.standard_streams import on_terminal, open_output, standard_input
from vanilla_transformer.translation.glossary import Glossary
from vanilla_transformer.translation.language_detection import languages_of_text


Translate = Callable[..., Iterator[list[Hypothesis]]]  # `Translator.translate` with its options
DOCUMENTS = {
    **dict.fromkeys((".srt", ".vtt", ".ass", ".ssa", ".sbv", ".ttml"), "a file of subtitles"),
    **dict.fromkeys((".po", ".pot", ".xliff", ".xlf", ".tmx"), "a translation file"),
    **dict.fromkeys((".doc", ".docx", ".odt", ".rtf", ".pdf", ".epub", ".pptx", ".xlsx"), "a document"),
    **dict.fromkeys((".html", ".htm", ".xml"), "markup"),
}


DEFAULT_MODEL_NOTE = (
    f"No --model is given: the bundled {EVERYDAY!r} translates, between English and German, French, Spanish and "
    "Chinese. It knows short everyday sentences; for news, books or terms of a trade give another --model."
)


@dataclass
class TranslateArguments:
    """What to translate, with which model, and where to write it."""

    text: list[str] = key([], "Texts to translate; the same as TEXT, which may stand anywhere.")
    model: list[str] = key(
        [],
        "Folder of the model, or its name on the Hub: this package's, MarianMT, T5 ... Several are an ensemble. By "
        "default the bundled everyday, for everyday sentences between English and de, fr, es and zh; also bundled is "
        "multi30k-en-de-tiny, for English image captions into German.",
    )
    input: list[str] = key(
        [], "Text files, each may be gzipped; with --shards also JSON lines or Parquet. Default: standard input."
    )
    format: Literal["auto", "lines"] = key(
        "auto", "lines: translate --input line by line although its name is that of a document or of subtitles."
    )
    output: str | None = key(None, "File for the translations, with --shards a folder; default: standard output.")
    overwrite: bool = key(False, "Replace the output file if it exists.")
    resume: bool = key(False, "Go on from <output>.partial, which an interrupted run with the same options has left.")

    n_best: int = key(1, "Number of translations for each line, best first.")
    scores: bool = key(False, "Write the score before each translation: log-probability / length penalty.")
    confidence: bool = key(
        False, "Write how sure the model is, from 0 to 1, before each translation; see vanilla calibrate."
    )
    alignment: bool = key(
        False, "Write which words belong together before each translation: 0-0 2-1 ..., source word and target word."
    )
    prefix: str | None = key(None, "Text that every translation must begin with.")
    glossary: str | None = key(
        None, "File with a source term, a tab and its required translation on each line; translations contain them."
    )
    split_sentences: bool = key(
        False, "Translate every sentence of a line by itself; for documents, whose lines are paragraphs."
    )
    source_lang: str | None = key(
        None, "Language of the input, for a model with several; by default, or with auto, each text decides."
    )
    target_lang: list[str] = key(
        [],
        "Language of the translations, for a model with several; or several languages. By default, the bundled "
        "everyday translates into all.",
    )
    zero_shot: bool = key(False, "Allow a direction that the model was not trained on.")

    window: int | None = key(None, "Lines read ahead and sorted by length; default: 4096, on a terminal 1.")

    shards: int | None = key(
        None, "Translate in this many shards, which a killed command or other processes continue; for large corpora."
    )
    only_shards: list[str] = key(
        [], "Translate only the shards of these numbers, which count from 0, and do not join: 3, or 0-15, or several."
    )
    text_column: str | None = key(None, "Column of JSON lines or Parquet that is translated; default: text.")
    translation_column: str | None = key(None, "New column for the translations; default: translation.")

    model_is_default: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.text and (self.input or self.shards is not None):
            raise ValueError("Give either texts or --input: texts are translated without --shards.")
        if self.format == "auto":
            require_lines(self.input)
        if self.resume and not self.output:
            raise ValueError("--resume goes on from <output>.partial: give the --output of the interrupted run.")
        if self.shards is None:
            self._require_no_shards()
        elif self.shards < 1:
            raise ValueError(f"shards={self.shards} must be at least 1.")
        elif not self.input or not self.output:
            raise ValueError("--shards needs --input, files that can be read again, and --output, a folder.")
        elif self.overwrite or self.resume:
            raise ValueError(
                f"With --shards, leave out --{'overwrite' if self.overwrite else 'resume'}: the same "
                f"command continues. To start again, delete {self.output}."
            )

        if len(set(self.target_lang)) < len(self.target_lang):
            raise ValueError(f"target_lang={' '.join(self.target_lang)} names a language twice: give each once.")
        if len(self.target_lang) > 1 and self.shards is not None:
            raise ValueError("--shards translates into one language: give one --target_lang, and a folder for each.")
        if not self.model:
            self.model, self.model_is_default = [EVERYDAY], True
        if self.into_all and self.resume:
            raise ValueError("--resume needs --target_lang: without it, the language of a text decides into how many.")
        self.shard_numbers()

    @property
    def into_all(self) -> bool:
        """Whether each text is translated into all languages that there are for its own."""
        return not self.target_lang and self.shards is None and is_family(self.model[0])

    def shard_numbers(self) -> set[int] | None:
        """Returns the numbers of `only_shards`; `None` for all shards."""
        return set().union(*map(self._numbers_in, self.only_shards)) if self.only_shards else None

    def _numbers_in(self, words: str) -> range:
        """Reads a number, or a range with both ends."""
        assert self.shards is not None
        if match := re.fullmatch(r"(\d+)(?:-(\d+))?", words):
            numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
            if numbers and numbers[-1] < self.shards:
                return numbers
        raise ValueError(
            f"only_shards={words!r} must be a number or a range of those of all shards, which are 0-{self.shards - 1}."
        )

    def _require_no_shards(self) -> None:
        if self.only_shards:
            raise ValueError("--only_shards names some of the shards: add --shards, the number of all of them.")
        for name in ("text_column", "translation_column"):
            if getattr(self, name) is not None:
                raise ValueError(f"--{name} is for tables, which are translated in shards: add --shards 1, or more.")
        for file in self.input:
            if format_of(file) != "text":
                raise ValueError(
                    f"{file} is a table ({format_of(file)}), which is translated in shards: add --shards 1, "
                    "or more, and --text_column."
                )

    @property
    def details(self) -> tuple[str, ...]:
        """What is written before each translation."""
        wanted = {"score": self.scores or self.n_best > 1, "confidence": self.confidence}
        wanted["word_alignment"] = self.alignment
        return tuple(name for name in DETAILS if wanted[name])

    @property
    def languages(self) -> dict[str, Any]:
        """The options of `Translator.translate` about languages, as far as they are given."""
        if self.split_sentences and not self.target_lang:
            return {}  # then source_lang is for splitting alone
        given = {"source_lang": self.source_lang, "zero_shot": self.zero_shot}
        if len(self.target_lang) == 1:
            given["target_lang"] = self.target_lang[0]
        return {name: value for name, value in given.items() if value}

    def generation(self, decoding: DecodingArguments) -> dict[str, Any]:
        """Returns the options of `Translator.translate`."""
        return {
            "n_best": self.n_best,
            "prefix": self.prefix,
            "glossary": Glossary.from_file(self.glossary) if self.glossary else None,
            "split_sentences": self.split_sentences and (self.source_lang or True),
            **self.languages,
            **{name: True for name in ("alignment", "confidence") if getattr(self, name)},
            **vars(decoding),
        }


def is_model(word: str) -> bool | None:
    """Whether a word is the name of a model; `None` for one that may be a text, too."""
    if "/" in word or word in (EVERYDAY, *BUNDLED) or Path(word).exists():
        return True
    return None if re.fullmatch(r"\w[\w.-]*\w", word, re.ASCII) else False


def is_language(word: str) -> bool | None:
    """Whether a word is the name of a language; `None` for one that may be a text, too."""
    if word.lower() in LANGUAGE_NAMED or re.fullmatch(r"[a-z]{2,3}[-_]\w+", word):
        return True
    return word in LANGUAGE_NAMES or (None if re.fullmatch(r"[a-z]{2,3}", word) else False)


# Which words after an option with several values are its values.
VALUES = {
    "model": is_model,
    "input": lambda word: not re.search(r"\s", word) or Path(word).exists(),
    "target_lang": is_language,
    "only_shards": lambda word: word[0].isdecimal(),
}


def require_lines(files: list[str]) -> None:
    """Refuses files whose markup or time codes a translation line by line would destroy."""
    for file in files:
        if (suffix := kind_of(Path(file)).lower()) in DOCUMENTS:
            raise ValueError(
                f"{file} is {DOCUMENTS[suffix]} and not lines of text: translate its text alone, or add --format "
                "lines to translate every line as it is."
            )


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        types = [TranslateArguments, DecodingArguments, LoadingArguments, WorkerArguments]
        options, decoding, loading, workers = parse_arguments(types, __doc__, argv, texts=VALUES)
        if options.shards is not None:
            translate_corpus(options, decoding, loading, workers)
            return
        if workers != WorkerArguments() or launched():
            raise ValueError("Several processes translate in shards: add --shards, and a folder as --output.")
        translate_lines(options, decoding, loading)


def translate_corpus(
    options: TranslateArguments, decoding: DecodingArguments, loading: LoadingArguments, workers: WorkerArguments
) -> None:
    """Translates in shards, and joins them."""
    assert options.output is not None
    assert options.shards is not None
    if Path(options.output).exists() and not Path(options.output).is_dir():
        raise ValueError(f"{options.output} is a file: with --shards, give the name of a folder for --output.")
    note_default_model(options)
    translation = CorpusTranslation(
        options.output,
        corpus_of(
            options.input,
            details=options.details,
            n_best=options.n_best,
            text_column=options.text_column,
            translation_column=options.translation_column,
        ),
        model_of_shards(options),
        loading,
        options.generation(decoding),
        partial(equal_ranges, number=options.shards),
        window=4096 if options.window is None else options.window,
        only_shards=options.shard_numbers(),
    )
    try:
        translate_shards(translation, workers)
        if not options.only_shards:
            translation.join()
    except KeyboardInterrupt:
        print(f"stopped: {options.output} keeps the finished shards; the same command continues", file=sys.stderr)
        raise
    if is_first() and options.only_shards:
        done = f"shards {' '.join(options.only_shards)} are done"
        print(f"{done}; the same command without --only_shards joins all of {options.output}", file=sys.stderr)
    elif is_first():
        print(f"{translation.rows:,} rows in {translation.shards.whole}", file=sys.stderr)


def model_of_shards(options: TranslateArguments) -> list[str]:
    """The models to load; of a family, the one for the languages that are given."""
    if len(options.model) > 1 or not is_family(options.model[0]):
        return options.model
    target = options.target_lang[0] if options.target_lang else None
    return [choose_member(options.model[0], Languages(options.source_lang, target))]


def note_default_model(options: TranslateArguments) -> None:
    if options.model_is_default and on_terminal(sys.stderr):
        print(DEFAULT_MODEL_NOTE, file=sys.stderr)


def translate_lines(options: TranslateArguments, decoding: DecodingArguments, loading: LoadingArguments) -> None:
    """Reads, translates and writes, a window at a time."""
    interactive = not options.input and not options.text and on_terminal(sys.stdin)
    show_progress = bool(options.output) and on_terminal(sys.stderr)
    lines = iter(options.text) if options.text else read_lines(options.input)
    total = sum(1 for _ in read_lines(options.input)) if show_progress and options.input else None
    generation = options.generation(decoding)
    try:
        with open_output(options.output, overwrite=options.overwrite, resume=options.resume) as file:
            note_default_model(options)
            translator = Translator.from_pretrained(
                options.model if len(options.model) > 1 else options.model[0],
                window=(1 if interactive else 4096) if options.window is None else options.window,
                **vars(loading),
            )
            translate: Translate = partial(translator.translate, **generation)
            if len(options.target_lang) > 1 or options.into_all:
                targets_of = partial(targets_of_text, translator, options)
                translate = partial(translate_into_each, translate, targets_of, translator.window)
            finished = 0
            if options.resume:
                again = partial(_texts_of, translate)
                for_each = options.n_best * max(len(options.target_lang), 1)
                finished = skip_finished_lines(lines, file, for_each, again, details=len(options.details))
            if interactive:
                print("Type a text and press Enter; Ctrl-D ends.", file=sys.stderr)
            left = lines if total is None else Counted(lines, total - finished)
            said: set[str] = set()
            for hypotheses in translate(left, progress=show_progress):
                say_language(hypotheses[0], said)
                file.write(output_lines(hypotheses, options.details))
                file.flush()
    except KeyboardInterrupt:
        if not options.output:
            print("stopped: the output has the lines translated so far", file=sys.stderr)
        elif (partial_file := partial_of(options.output)).is_file():
            done = f"stopped: {partial_file} has the lines translated so far"
            print(f"{done}; the same command with --resume goes on from there", file=sys.stderr)
        raise


def targets_of_text(translator: Translator, options: TranslateArguments, text: str) -> list[str]:
    """Returns the languages into which a text is translated: those given, or all that there are for its own."""
    if options.target_lang:
        return options.target_lang
    (source, _), _ = languages_of_text(text, Languages(options.source_lang), translator.directions)
    return [str(direction.target) for direction in translator.directions if direction.source == source]


def translate_into_each(
    translate: Translate, targets_of: Callable[[str], list[str]], window: int, lines: Iterable[str], **options: Any
) -> Iterator[list[Hypothesis]]:
    """Translates each line into several languages, whose names stand in front of the translations."""
    numbered = enumerate(lines, start=1)
    while group := list(islice(numbered, window)):
        targets = [targets_of(text) for _, text in group]
        translated: list[list[Hypothesis]] = [[] for _ in group]
        for target in dict.fromkeys(chain.from_iterable(targets)):
            indices = [index for index, languages in enumerate(targets) if target in languages]
            numbers, texts = zip(*(group[index] for index in indices), strict=True)
            translations = translate(texts, target_lang=target, numbers=numbers, **options)
            for index, hypotheses in zip(indices, translations, strict=True):
                translated[index] += [replace(each, text=f"{target}\t{each.text}") for each in hypotheses]
        yield from translated


def say_language(hypothesis: Hypothesis, said: set[str]) -> None:
    """Says once which language was found, on a terminal, and which one was assumed or needed no translation."""
    found, is_news = hypothesis.detected, True
    name = LANGUAGE_NAMES.get(base_of(found.language), found.language) if found else ""
    if hypothesis.unchanged:
        sentence = "The text is in the target language already: it comes back unchanged."
    elif found is None or not hypothesis.text:
        return
    elif found.is_certain:
        sentence, is_news = f"Source language: {name}.", on_terminal(sys.stderr)
    else:
        sentence = f"The text does not tell its language: {name} is assumed (--source_lang sets it)."
    if is_news and sentence not in said:
        print(sentence, file=sys.stderr)
    said.add(sentence)


def read_lines(files: list[str]) -> Iterator[str]:
    return lines_in_files(files) if files else decoded_lines(standard_input(), "standard input")


@dataclass
class Counted:
    """Lines that are read once and whose number is known: a progress bar then shows the remaining time."""

    lines: Iterator[str]
    number: int

    def __iter__(self) -> Iterator[str]:
        return self.lines

    def __len__(self) -> int:
        return self.number


def _texts_of(translate: Translate, sources: list[str]) -> list[str]:
    return [output_lines(hypotheses) for hypotheses in translate(sources)]


if __name__ == "__main__":
    main()
