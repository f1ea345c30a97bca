"""Translate text, line by line: one line of output for each line of input, in the same order.

    echo "When does the train arrive in Berlin?" | vanilla-translate --model runs/demo/model
    vanilla-translate --model runs/demo/model --input news.en --output news.de
    vanilla-translate --model runs/demo/model --input news.en.gz --n_best 3 --scores
    vanilla-translate --model runs/demo/model --input news.en --output news.de --backend ctranslate2

Lines are read a window at a time, sorted by length, translated in batches and written in their own order, so memory
stays the same however long the input is. On a terminal every line is answered at once. Without --scores or --n_best
the output is nothing but translations; with them each line is score, tab, translation, and with --n_best N every line
of input has N lines of output, best first.

Ctrl-C leaves whole lines: what was translated so far is in the output, or beside it as <output>.partial.
"""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from vanilla_transformer.training.arguments import (
    DecodingArguments,
    LoadingArguments,
    errors_as_sentences,
    key,
    parse_arguments,
)


@dataclass
class TranslateArguments:
    """What to translate, with which model, and how."""

    model: str = key("runs/demo/model", "Folder or name on the Hub of the model: this one, MarianMT, T5 ...")
    input: list[str] = key([], "Text files, each may be gzipped; standard input by default.")
    output: str | None = key(None, "File for the translations; standard output by default.")
    overwrite: bool = key(False, "Replace that file if it is there.")

    n_best: int = key(1, "Translations of each line, best first.")
    scores: bool = key(False, "Write the score before each translation: log-probability / length penalty.")
    prefix: str | None = key(None, "What every translation must begin with.")

    window: int | None = key(None, "Lines read ahead and sorted by length; 4096, on a terminal 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        translate(*parse_arguments([TranslateArguments, DecodingArguments, LoadingArguments], __doc__, argv))


def translate(options: TranslateArguments, decoding: DecodingArguments, loading: LoadingArguments) -> None:
    """Reads, translates and writes, a window at a time."""
    from vanilla_transformer import Translator
    from vanilla_transformer.atomic_writes import whole_file

    on_terminal = not options.input and sys.stdin.isatty()
    lines = read_lines(options.input)
    output = whole_file(options.output, overwrite=options.overwrite) if options.output else nullcontext(sys.stdout)
    try:
        with output as file:
            translator = Translator.from_pretrained(
                options.model,
                window=(1 if on_terminal else 4096) if options.window is None else options.window,
                **vars(loading),
            )
            results = translator.translate(
                lines,
                n_best=options.n_best,
                prefix=options.prefix,
                progress=bool(options.output) and sys.stderr.isatty(),
                **vars(decoding),
            )
            for hypotheses in results:
                file.write(lines_for(hypotheses, with_scores=options.scores or options.n_best > 1))
                file.flush()
    except KeyboardInterrupt:
        place = f"{options.output}.partial" if options.output else "the output"
        print(f"stopped: {place} has the lines translated so far, each of them whole", file=sys.stderr)
        raise


def read_lines(files: list[str]) -> Iterator[str]:
    from vanilla_transformer.training.corpus_files import decoded_lines, lines_in_files

    return lines_in_files(files) if files else decoded_lines(sys.stdin.buffer, "standard input")


def lines_for(hypotheses, with_scores: bool) -> str:
    """The lines of output for one line of input."""
    from vanilla_transformer.atomic_writes import one_line

    return "".join(
        f"{hypothesis.score:.6f}\t{one_line(hypothesis.text)}\n" if with_scores else f"{one_line(hypothesis.text)}\n"
        for hypothesis in hypotheses
    )


if __name__ == "__main__":
    main()
