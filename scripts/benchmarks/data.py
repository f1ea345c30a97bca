"""Measure token batches: padding beside other orders, memory of tokenising, time of batching.

    vanilla benchmark data --train_files data/train --source_lang en --target_lang de --vocab_size 10000
    vanilla benchmark data --train_files data/train --pairs 1000000 --lengths 4500000

The vocabulary is learned from the corpus first. Synthetic pairs and lengths show the cost of large corpora: WMT14 has
4.5 million pairs.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.scripts.benchmarks.measuring import in_fresh_process, peak_memory
from vanilla_transformer.scripts.benchmarks.report import OutputArguments, Table, report
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.parallel_corpus import load_corpus, tokenize
from vanilla_transformer.training.data.token_batches import Limits, Padding, TokenBatchSampler, column_lengths, cut
from vanilla_transformer.training.data.vocabulary import sentences


SIDES = ["source", "target"]
OURS = "token batches (ours)"


@dataclass
class BenchmarkCorpusArguments(CorpusArguments):
    """The corpus of a benchmark. Its languages only name files and columns."""

    source_lang: str | None = key("en", "Suffix or column of the source side.")
    target_lang: str | None = key("de", "Suffix or column of the target side.")


@dataclass
class DataBenchmarkArguments(OutputArguments):
    """The vocabulary, the limits of a batch, and the sizes of the synthetic data."""

    vocab_size: int = key(10000, "Tokens in the joint BPE vocabulary learned from the corpus.")
    max_tokens: list[int] = key([4096, 1024], "Limits of tokens on each side of a batch, to compare orders with.")
    pairs: int = key(0, "Synthetic pairs to tokenise and batch, for the peak of memory; 0 skips this.")
    lengths: int = key(0, "Synthetic lengths to batch, for the time; 0 skips this.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        corpus, options = parse_arguments([BenchmarkCorpusArguments, DataBenchmarkArguments], __doc__, argv)
        report(options, measure(corpus, options))


def measure(corpus: CorpusArguments, options: DataBenchmarkArguments) -> Iterator[Table]:
    """The table of paddings, then those of the synthetic data."""
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
        title = f"batching {options.lengths:,} lengths, 25,000 tokens on each side"
        yield Table(title, formats, {"token batches": row})


# --- padding ---


def compare_orders(corpus_arguments: CorpusArguments, options: DataBenchmarkArguments) -> Table:
    """The share of padding with each order, all with the same limits."""
    _, tokens = learn_and_tokenise(corpus_arguments, options.vocab_size)
    source, target = column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels")
    longest_fitting(min(options.max_tokens), source, target)
    orders = {
        "random": np.random.default_rng(0).permutation(len(source)),
        "by source length": np.lexsort((target, source)),
        "by the longer side": np.argsort(np.maximum(source, target), kind="stable"),
    }
    columns = {limit: f"{limit:,} tokens" for limit in options.max_tokens}
    rows: dict[str, dict[str, float]] = {name: {} for name in [*orders, OURS]}
    notes = []
    for limit, column in columns.items():
        for name, order in orders.items():
            lengths = source[order], target[order]
            rows[name][column] = Padding.measure(*lengths, cut(*lengths, Limits(limit, limit))).both
        padding = TokenBatchSampler(source, target, max_tokens=limit).padding()
        rows[OURS][column] = padding.both
        notes.append(f"ours with {column} on each side: {padding}")
    pairs = f"{len(source):,} pairs, {source.sum():,} source and {target.sum():,} target tokens"
    formats = dict.fromkeys(columns.values(), "{:.1%}")
    return Table(f"padding, both sides together; {pairs}", formats, rows, drawn=list(formats), notes=notes)


def learn_and_tokenise(corpus_arguments: CorpusArguments, vocab_size: int) -> tuple[PreTrainedTokenizerBase, Dataset]:
    """A tokenizer with a joint vocabulary of the training text, and the tokenised text."""
    if corpus_arguments.streaming:
        raise ValueError("--streaming: a stream cannot be reordered, leave it out.")
    text = load_corpus(corpus_arguments, splits=("train",))["train"]
    tokenizer = train_tokenizer(sentences(text, SIDES), vocab_size=vocab_size, show_progress=False)
    return tokenizer, tokenize(text, tokenizer, num_proc=corpus_arguments.num_proc)


def longest_fitting(max_tokens: int, source: np.ndarray, target: np.ndarray) -> int:
    """The length of the longest side of all pairs; raises an error if it does not fit in a batch."""
    longest = int(max(source.max(), target.max()))
    if longest > max_tokens:
        raise ValueError(
            f"--max_tokens {max_tokens}: the longest pair has {longest} tokens on a side. Give at least that, or "
            "leave out long pairs with --max_words."
        )
    return longest


# --- synthetic data ---


def tokenise_synthetic_pairs(pairs: int, vocab_size: int) -> tuple[float, int]:
    """Seconds and peak bytes of reading, tokenising and batching synthetic sentences."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.tsv"
        _write_synthetic_pairs(path, pairs)
        start = time.perf_counter()
        text = load_corpus(BenchmarkCorpusArguments(train_files=[str(path)]), splits=("train",))["train"]
        tokenizer = train_tokenizer(sentences(text, SIDES, 100_000), vocab_size=vocab_size)
        tokens = tokenize(text, tokenizer)
        sampler = TokenBatchSampler(column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels"))
        assert sum(map(len, sampler)) == pairs
        seconds = time.perf_counter() - start
        for dataset in (tokens, text):
            dataset.cleanup_cache_files()
    return seconds, peak_memory()


def time_batching(number: int) -> tuple[float, float, int]:
    """Seconds to make a sampler, seconds of one epoch of its indices, and its number of batches. The lengths are
    distributed like those of news text."""
    draw = np.random.default_rng(0)
    source = draw.lognormal(3.2, 0.6, number).astype(np.int32).clip(2, 250)
    target = (source * draw.lognormal(0.05, 0.2, number)).astype(np.int32).clip(2, 250)
    start = time.perf_counter()
    sampler = TokenBatchSampler(source, target, max_tokens=25_000)
    constructed = time.perf_counter()
    pairs = sum(map(len, sampler))
    finished = time.perf_counter()
    assert pairs == number
    return constructed - start, finished - constructed, len(sampler)


def _write_synthetic_pairs(path: Path, pairs: int) -> None:
    """Sentences of 5 to 45 words. Word ranks follow Zipf's law, so that a vocabulary can be learned."""
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
