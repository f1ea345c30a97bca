"""Measure alignments: error rate of models on sentences of the demo corpus, whose grammar knows the word links.

vanilla benchmark alignment --models runs/demo/model runs/guided/model
"""

from collections.abc import Iterator
from dataclasses import dataclass

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.scripts.benchmarks.report import OutputArguments, Table, report
from vanilla_transformer.training.data.demo_corpus.gold_links import alignment_error_rate, linked_pairs
from vanilla_transformer.translation.words import word_attention


@dataclass
class AlignmentBenchmarkArguments(OutputArguments):
    """Which models, and on how many sentences."""

    models: list[str] = key([], "Folders of models from English into German that were trained on the demo corpus.")
    sentences: int = key(500, "Number of sentences of the test split.")

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("No model is given: set --models.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([AlignmentBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: AlignmentBenchmarkArguments) -> Iterator[Table]:
    """One table: each model reads the reference, and each word of it is linked with the word it attends to most."""
    pairs = linked_pairs("test", options.sentences)
    rows = {}
    for model in options.models:
        translator = Translator.from_pretrained(model, backend="torch")
        alignments = []
        for pair in pairs:
            sources = word_attention(pair.en, translator.attend(pair.en, pair.de)).alignment
            alignments.append({(source, target) for target, source in enumerate(sources)})
        rows[model] = {"AER": alignment_error_rate(alignments, pairs)}
    yield Table(f"Alignment error rate on {len(pairs):,} sentences", {"AER": "{:.1%}"}, rows, drawn=["AER"])


if __name__ == "__main__":
    main()
