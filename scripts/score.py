"""Score given translations with a model: log-probability and perplexity of each pair (forced decoding).

    vanilla score --model runs/demo/model --files data/test    # data/test.en + data/test.de
    vanilla score --model runs/demo/model --files pairs.tsv --output scores.tsv

The output has one line for each pair, in the same order, with three columns separated by tabs: log-probability
(natural logarithm, end of sentence included), number of target tokens, perplexity. The perplexity of all pairs
together goes to standard error.
"""

import math
import sys
from dataclasses import dataclass

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.languages import (
    Languages,
    agreed_languages,
    find_direction,
    load_directions,
    load_languages,
)
from vanilla_transformer.safe_files.standard_streams import on_terminal, open_output
from vanilla_transformer.training.data.corpus_files import pairs_in_files
from vanilla_transformer.translation.long_texts import MAX_SOURCE_TOKENS


@dataclass
class ScoreArguments:
    """Which pairs to score, and with which model."""

    files: list[str] = key(
        [],
        "Pairs: a prefix such as data/test for data/test.en + data/test.de, the two files themselves, or .tsv, .csv, "
        ".jsonl and .parquet tables; each may be gzipped.",
    )
    source_lang: str | None = key(None, "Suffix or column of the source side; by default the model's language.")
    target_lang: str | None = key(None, "Suffix or column of the target side; by default the model's language.")
    columns: list[str] = key([], "Names of the columns of .tsv and .csv files without a header line.")
    model: str = key("runs/demo/model", "Folder of the model, or its name on the Hub.")
    output: str | None = key(None, "File for the scores; default: standard output.")
    overwrite: bool = key(False, "Replace the output file if it exists.")
    max_tokens: int = key(2048, "Tokens in a batch, padding included.")
    max_source_tokens: int = key(
        MAX_SOURCE_TOKENS, "Longest text in tokens. A longer source is cut with a warning, a longer target refused."
    )
    device: str | None = key(None, "Device, for example cpu or cuda:1; default: a GPU if there is one.")

    def __post_init__(self) -> None:
        if not self.files:
            raise ValueError("No pairs are given: set --files.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ScoreArguments], __doc__, argv)
        score_pairs(options)


def score_pairs(options: ScoreArguments) -> float:
    """Writes the scores; returns the perplexity of all pairs together."""
    given, several = Languages(options.source_lang, options.target_lang), load_directions(options.model)
    recorded = find_direction(several, given, options.model) if len(several) > 1 else load_languages(options.model)
    source_lang, target_lang = agreed_languages(given, recorded, options.model)
    if source_lang is None or target_lang is None:
        raise ValueError(f"{options.model} records no languages: set --source_lang and --target_lang.")
    pairs = pairs_in_files(options.files, source_lang, target_lang, options.columns)
    translator = Translator.from_pretrained(
        options.model,
        backend="torch",
        device=options.device,
        max_tokens=options.max_tokens,
        max_source_tokens=options.max_source_tokens,
    )
    output = open_output(options.output, overwrite=options.overwrite)
    total, tokens = 0.0, 0
    with output as file:
        scores = translator.score(
            pairs,
            source_lang=source_lang,
            target_lang=target_lang,
            progress=bool(options.output) and on_terminal(sys.stderr),
        )
        for pair_score in scores:
            file.write(f"{pair_score.log_probability:.6f}\t{pair_score.tokens}\t{pair_score.perplexity:.4f}\n")
            total, tokens = total + pair_score.log_probability, tokens + pair_score.tokens
    if not tokens:
        raise ValueError(f"There are no pairs in {', '.join(options.files)}.")
    perplexity = math.exp(-total / tokens)
    print(f"perplexity {perplexity:.4f} over {tokens:,} tokens", file=sys.stderr)
    return perplexity


if __name__ == "__main__":
    main()
