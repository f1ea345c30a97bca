"""Say how likely a model finds given translations: log-probability and perplexity of every pair (force-decoding).

    vanilla-score --model runs/demo/model --files data/test --source_lang en --target_lang de
    vanilla-score --model runs/demo/model --files pairs.tsv --output scores.tsv

Writes a line for each pair, in order: log-probability (natural logarithm, end of sentence included), tokens of the
target, perplexity, separated by tabs. The perplexity of the whole comes last, on standard error.
"""

import math
import sys
from contextlib import nullcontext
from dataclasses import dataclass

from vanilla_transformer.training.arguments import errors_as_sentences, key, parse_arguments


@dataclass
class ScoreArguments:
    """Which pairs to score, with which model."""

    files: list[str] = key(
        [],
        "Pairs: a prefix such as data/test for data/test.en + data/test.de, the two files themselves, or .tsv, .csv, "
        ".jsonl and .parquet tables; each may be gzipped.",
    )
    source_lang: str = key("en", "Suffix or column of the source side.")
    target_lang: str = key("de", "Suffix or column of the target side.")
    columns: list[str] = key([], "Names of the columns of .tsv and .csv files without a header line.")
    model: str = key("runs/demo/model", "Folder or name on the Hub of the model.")
    output: str | None = key(None, "File for the scores; standard output by default.")
    overwrite: bool = key(False, "Replace that file if it is there.")
    max_tokens: int = key(2048, "Tokens in a batch, padding included.")
    device: str | None = key(None, "Where to run, for example cpu or cuda:1; a GPU if there is one.")

    def __post_init__(self):
        if not self.files:
            raise ValueError("No pairs are given: set --files.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ScoreArguments], __doc__, argv)
        score(options)


def score(options: ScoreArguments) -> float:
    """Writes the scores and returns the perplexity of the whole."""
    from vanilla_transformer import Translator
    from vanilla_transformer.atomic_writes import whole_file
    from vanilla_transformer.training.corpus_files import pairs_in_files

    pairs = pairs_in_files(options.files, options.source_lang, options.target_lang, options.columns)
    translator = Translator.from_pretrained(options.model, device=options.device, max_tokens=options.max_tokens)
    output = whole_file(options.output, overwrite=options.overwrite) if options.output else nullcontext(sys.stdout)
    total, tokens = 0.0, 0
    with output as file:
        for found in translator.score(pairs, progress=bool(options.output) and sys.stderr.isatty()):
            file.write(f"{found.log_probability:.6f}\t{found.tokens}\t{found.perplexity:.4f}\n")
            total, tokens = total + found.log_probability, tokens + found.tokens
    if not tokens:
        raise ValueError(f"There are no pairs in {', '.join(options.files)}.")
    perplexity = math.exp(-total / tokens)
    print(f"perplexity {perplexity:.4f} over {tokens:,} tokens", file=sys.stderr)
    return perplexity


if __name__ == "__main__":
    main()
