"""Translate text, line by line: one output line for each input line, in the same order.

    echo "When does the train arrive in Berlin?" | vanilla-translate --model runs/demo/model
    vanilla-translate --model runs/demo/model --input news.en --output news.de
    vanilla-translate --model runs/demo/model --input news.en.gz --n_best 3 --scores
    vanilla-translate --model runs/demo/model --input news.en --output news.de --backend ctranslate2
    vanilla-translate --model runs/demo/model --input news.en --output news.de --glossary terms.tsv
    vanilla-translate --model runs/demo/model --input report.txt --output report.de.txt --split_sentences
    vanilla-translate --model runs/seed1/model runs/seed2/model --input news.en --output news.de   # an ensemble

The command reads a window of lines at a time, sorts them by length, translates them in batches and writes them in the
input order. Memory does not grow with the input. On a terminal, every line is translated at once. By default the
output has translations only. With --scores or --n_best each line is score, tab, translation. With --n_best N every
input line has N output lines, best first.

Ctrl-C never cuts a line: the translations so far are in the output, or in <output>.partial.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from vanilla_transformer import Hypothesis, Translator
from vanilla_transformer.atomic_writes import one_line, whole_file
from vanilla_transformer.glossary import Glossary
from vanilla_transformer.loading import BUNDLED
from vanilla_transformer.training.arguments import (
    DecodingArguments,
    LoadingArguments,
    errors_as_sentences,
    key,
    parse_arguments,
)
from vanilla_transformer.training.corpus_files import decoded_lines, lines_in_files


BUNDLED_MODEL_NOTE = (
    f"No --model is given: the bundled {BUNDLED[0]} translates. It is for English image captions into German; give a "
    "model of your own for any other text."
)


@dataclass
class TranslateArguments:
    """What to translate, with which model, and where to write it."""

    model: list[str] = key(
        [],
        "Folder of the model, or its name on the Hub: this package's, MarianMT, T5 ... Several are an ensemble. By "
        "default the bundled multi30k-en-de-tiny, which translates English image captions into German.",
    )
    input: list[str] = key([], "Text files, each may be gzipped; default: standard input.")
    output: str | None = key(None, "File for the translations; default: standard output.")
    overwrite: bool = key(False, "Replace the output file if it exists.")

    n_best: int = key(1, "Number of translations for each line, best first.")
    scores: bool = key(False, "Write the score before each translation: log-probability / length penalty.")
    prefix: str | None = key(None, "Text that every translation must begin with.")
    glossary: str | None = key(
        None, "File with a source term, a tab and its required translation on each line; translations contain them."
    )
    split_sentences: bool = key(
        False, "Translate every sentence of a line by itself; for documents, whose lines are paragraphs."
    )
    source_lang: str | None = key(
        None, "With --split_sentences: language of the input, by which it is split; by default the model's."
    )

    window: int | None = key(None, "Lines read ahead and sorted by length; default: 4096, on a terminal 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        translate_lines(*parse_arguments([TranslateArguments, DecodingArguments, LoadingArguments], __doc__, argv))


def translate_lines(options: TranslateArguments, decoding: DecodingArguments, loading: LoadingArguments) -> None:
    """Reads, translates and writes, a window at a time."""
    on_terminal = not options.input and sys.stdin.isatty()
    lines = read_lines(options.input)
    glossary = Glossary.from_file(options.glossary) if options.glossary else None
    output = whole_file(options.output, overwrite=options.overwrite) if options.output else nullcontext(sys.stdout)
    try:
        with output as file:
            if not options.model:
                print(BUNDLED_MODEL_NOTE, file=sys.stderr)
            translator = Translator.from_pretrained(
                options.model or BUNDLED[0],
                window=(1 if on_terminal else 4096) if options.window is None else options.window,
                **vars(loading),
            )
            results = translator.translate(
                lines,
                n_best=options.n_best,
                prefix=options.prefix,
                glossary=glossary,
                split_sentences=options.split_sentences and (options.source_lang or True),
                progress=bool(options.output) and sys.stderr.isatty(),
                **vars(decoding),
            )
            for hypotheses in results:
                file.write(output_lines(hypotheses, with_scores=options.scores or options.n_best > 1))
                file.flush()
    except KeyboardInterrupt:
        written_to = f"{options.output}.partial" if options.output else "the output"
        print(f"stopped: {written_to} has the lines translated so far", file=sys.stderr)
        raise


def read_lines(files: list[str]) -> Iterator[str]:
    return lines_in_files(files) if files else decoded_lines(sys.stdin.buffer, "standard input")


def output_lines(hypotheses: Sequence[Hypothesis], *, with_scores: bool) -> str:
    """The output lines for one input line."""
    return "".join(
        f"{hypothesis.score:.6f}\t{one_line(hypothesis.text)}\n" if with_scores else f"{one_line(hypothesis.text)}\n"
        for hypothesis in hypotheses
    )


if __name__ == "__main__":
    main()
