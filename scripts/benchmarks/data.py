"""Measure token batches: their padding beside that of other orders, the memory of tokenising, the time of batching.

    vanilla-benchmark data --train_files data/train --source_lang en --target_lang de --vocab_size 10000
    vanilla-benchmark data --train_files data/train --pairs 1000000 --lengths 4500000

The vocabulary is learned on the way. The synthetic pairs and lengths show what large corpora cost: WMT14 has 4.5
million pairs.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.scripts.benchmarks.benchmark import (
    OutputArguments,
    Table,
    in_fresh_process,
    peak_memory,
    report,
)
from vanilla_transformer.training.arguments import CorpusArguments, errors_as_sentences, key, parse_arguments


SIDES = ["source", "target"]


@dataclass
class DataBenchmarkArguments(OutputArguments):
    """What is measured."""

    vocab_size: int = key(10000, "Pieces of the joint BPE learned from the corpus.")
    max_tokens: list[int] = key([4096, 1024], "Limits of tokens a side and batch to compare orders under.")
    pairs: int = key(0, "Synthetic pairs to tokenise and batch for the peak of memory; 0 to leave that out.")
    lengths: int = key(0, "Synthetic lengths to batch for the time; 0 to leave that out.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        corpus, options = parse_arguments([CorpusArguments, DataBenchmarkArguments], __doc__, argv)
        report(options, measure(corpus, options))


def measure(corpus: CorpusArguments, options: DataBenchmarkArguments) -> Iterator[Table]:
    yield compare_orders(corpus, options)
    if options.pairs:
        seconds, peak = in_fresh_process(tokenise_synthetic_pairs, options.pairs, options.vocab_size)
        row = {"seconds": seconds, "pairs/s": options.pairs / seconds, "peak": peak / 2**30}
        formats = {"seconds": "{:.0f}", "pairs/s": "{:,.0f}", "peak": "{:.2f} GiB"}
        yield Table(f"{options.pairs:,} synthetic pairs read, tokenised and batched", formats, {"all of it": row})
    if options.lengths:
        construction, epoch, batches = time_batching(options.lengths)
        row = {"construction": construction, "an epoch of indices": epoch, "batches": batches}
        formats = {"construction": "{:.2f} s", "an epoch of indices": "{:.2f} s", "batches": "{:,}"}
        yield Table(f"batching {options.lengths:,} lengths, 25,000 tokens a side", formats, {"token batches": row})


def compare_orders(corpus_arguments: CorpusArguments, options: DataBenchmarkArguments) -> Table:
    """The share of padding under each order, the same limits holding for all."""
    import numpy as np

    from vanilla_transformer.training.batching import Limits, Padding, TokenBatchSampler, column_lengths, cut

    _, tokens = learn_and_tokenise(corpus_arguments, options.vocab_size)
    source, target = column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels")
    longest_fitting(min(options.max_tokens), source, target)
    orders = {
        "random": np.random.default_rng(0).permutation(len(source)),
        "by source length": np.lexsort((target, source)),
        "by the longer side": np.argsort(np.maximum(source, target), kind="stable"),
    }
    heads = {limit: f"{limit:,} tokens" for limit in options.max_tokens}
    rows: dict[str, dict[str, float]] = {name: {} for name in [*orders, "token batches (ours)"]}
    notes = []
    for limit, head in heads.items():
        for name, order in orders.items():
            line = source[order], target[order]
            rows[name][head] = Padding.measure(*line, cut(*line, Limits(limit, limit))).both
        padding = TokenBatchSampler(source, target, max_tokens=limit).padding()
        rows["token batches (ours)"][head] = padding.both
        notes.append(f"ours at {head} a side: {padding}")
    pairs = f"{len(source):,} pairs, {source.sum():,} source and {target.sum():,} target tokens"
    formats = dict.fromkeys(heads.values(), "{:.1%}")
    return Table(f"padding, both sides together; {pairs}", formats, rows, drawn=list(formats), notes=notes)


def learn_and_tokenise(corpus_arguments: CorpusArguments, vocab_size: int):
    """A joint vocabulary of the training text, and the text in its pieces."""
    from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer
    from vanilla_transformer.training.corpus import load_corpus, tokenize
    from vanilla_transformer.training.vocabulary import sentences

    if corpus_arguments.streaming:
        raise ValueError("--streaming: a stream can't be put in other orders, leave it out.")
    text = load_corpus(corpus_arguments, splits=("train",))["train"]
    tokenizer = train_tokenizer(sentences(text, SIDES), vocab_size=vocab_size, show_progress=False)
    return tokenizer, tokenize(text, tokenizer, num_proc=corpus_arguments.num_proc)


def longest_fitting(max_tokens: int, source, target) -> int:
    """The longest side of all pairs with these lengths, which must fit in a batch."""
    longest = int(max(source.max(), target.max()))
    if longest > max_tokens:
        raise ValueError(
            f"--max_tokens {max_tokens}: the longest pair has {longest} tokens on a side. Give at least that, or "
            "leave out long pairs with --max_words."
        )
    return longest


def tokenise_synthetic_pairs(pairs: int, vocab_size: int) -> tuple[float, int]:
    """Seconds and peak bytes for reading, tokenising and batching sentences of invented words."""
    from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer
    from vanilla_transformer.training.batching import TokenBatchSampler, column_lengths
    from vanilla_transformer.training.corpus import load_corpus, tokenize
    from vanilla_transformer.training.vocabulary import sentences

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.tsv"
        _write_synthetic_pairs(path, pairs)
        start = time.perf_counter()
        text = load_corpus(CorpusArguments(train_files=[str(path)]), splits=("train",))["train"]
        tokenizer = train_tokenizer(sentences(text, SIDES, 100_000), vocab_size=vocab_size)
        tokens = tokenize(text, tokenizer)
        sampler = TokenBatchSampler(column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels"))
        assert sum(map(len, sampler)) == pairs
        seconds = time.perf_counter() - start
        for dataset in (tokens, text):
            dataset.cleanup_cache_files()
    return seconds, peak_memory()


def time_batching(number: int) -> tuple[float, float, int]:
    """Seconds for making a sampler and for one epoch of its indices, and its batches; lengths like those of news."""
    import numpy as np

    from vanilla_transformer.training.batching import TokenBatchSampler

    draw = np.random.default_rng(0)
    source = draw.lognormal(3.2, 0.6, number).astype(np.int32).clip(2, 250)
    target = (source * draw.lognormal(0.05, 0.2, number)).astype(np.int32).clip(2, 250)
    start = time.perf_counter()
    sampler = TokenBatchSampler(source, target, max_tokens=25_000)
    made = time.perf_counter()
    pairs = sum(map(len, sampler))
    done = time.perf_counter()
    assert pairs == number
    return made - start, done - made, len(sampler)


def _write_synthetic_pairs(path: Path, pairs: int) -> None:
    """Sentences of 5 to 45 words; word ranks follow Zipf's law, so that a vocabulary has something to learn."""
    import numpy as np

    draw = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    words = ["".join(draw.choice(letters, size=draw.integers(2, 10))) for _ in range(50_000)]
    with path.open("w", encoding="utf-8") as file:
        file.write("en\tde\n")
        for _ in range(pairs):
            length = int(draw.integers(5, 46))
            ranks = draw.zipf(1.3, size=2 * length + 2) % len(words)
            sides = ranks[:length], ranks[length : 2 * length + int(draw.integers(-2, 3))]
            file.write("\t".join(" ".join(words[rank] for rank in side) for side in sides) + "\n")


if __name__ == "__main__":
    main()
