"""Measure what matters, beside the alternatives, in one run.

Token batches of your corpus against other orders, with a vocabulary learned on the way:

    vanilla-benchmark data --train_files data/train --source_lang en --target_lang de --vocab_size 10000

The same, and the cost of a million synthetic pairs and of 4.5 million lengths, the size of WMT14:

    vanilla-benchmark data --train_files data/train --pairs 1000000 --lengths 4500000
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.training.arguments import CorpusArguments, errors_as_sentences, key, parse_arguments


SIDES = ["source", "target"]


@dataclass
class DataBenchmarkArguments:
    """What `benchmark data` measures."""

    vocab_size: int = key(10000, "Pieces of the joint BPE learned from the corpus.")
    max_tokens: list[int] = key([4096, 1024], "Limits of tokens a side and batch to compare orders under.")
    pairs: int = key(0, "Synthetic pairs to tokenise and batch for the peak of memory; 0 to leave that out.")
    lengths: int = key(0, "Synthetic lengths to batch for the time; 0 to leave that out.")


def main(argv: list[str] | None = None) -> None:
    argv = list(sys.argv[1:] if argv is None else argv)
    with errors_as_sentences():
        if argv and argv[0] in BENCHMARKS:
            BENCHMARKS[argv[0]](argv[1:])
        elif not argv or argv[0] in ("-h", "--help"):
            print(f"usage: vanilla-benchmark {{{','.join(BENCHMARKS)}}} [options]\n\n{__doc__}")
            print("vanilla-benchmark NAME --help lists the options.")
        else:
            raise ValueError(f"There is no benchmark {argv[0]!r}: choose one of {', '.join(BENCHMARKS)}.")


def benchmark_data(argv: list[str]) -> None:
    """Padding of token batches, memory of tokenising, time of batching."""
    corpus, options = parse_arguments([CorpusArguments, DataBenchmarkArguments], __doc__, argv)
    compare_orders(corpus, options)
    if options.pairs:
        seconds, peak = _in_fresh_process(tokenise_synthetic_pairs, options.pairs, options.vocab_size)
        rate = options.pairs / seconds
        print(
            f"\n{options.pairs:,} synthetic pairs read, tokenised and batched: {seconds:.0f} s ({rate:,.0f} pairs/s)"
        )
        print(f"peak memory {peak / 2**30:.2f} GiB")
    if options.lengths:
        print(f"\nbatching {options.lengths:,} lengths, 25,000 tokens a side:")
        construction, epoch, batches = time_batching(options.lengths)
        print(f"  construction {construction:.2f} s, one epoch of indices {epoch:.2f} s, {batches:,} batches")


def compare_orders(corpus_arguments: CorpusArguments, options: DataBenchmarkArguments) -> None:
    """Prints the share of padding under each order, the same limits holding for all."""
    import numpy as np

    from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer
    from vanilla_transformer.training.batching import Limits, Padding, TokenBatchSampler, column_lengths, cut
    from vanilla_transformer.training.data import load_corpus, tokenize
    from vanilla_transformer.training.vocabulary import sentences

    text = load_corpus(corpus_arguments, splits=("train",))["train"]
    tokenizer = train_tokenizer(sentences(text, SIDES), vocab_size=options.vocab_size)
    tokens = tokenize(text, tokenizer, num_proc=corpus_arguments.num_proc)
    source, target = column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels")
    orders = {
        "random": np.random.default_rng(0).permutation(len(source)),
        "by source length": np.lexsort((target, source)),
        "by the longer side": np.argsort(np.maximum(source, target), kind="stable"),
    }
    print(f"\n{len(source):,} pairs, {source.sum():,} source and {target.sum():,} target tokens")
    print(f"{'padding, both sides together':<30}" + "".join(f"{limit:>12,}" for limit in options.max_tokens))
    for name, order in orders.items():
        shares = []
        for limit in options.max_tokens:
            line = source[order], target[order]
            shares.append(Padding.measure(*line, cut(*line, Limits(limit, limit))).both)
        print(f"{name:<30}" + "".join(f"{share:>12.1%}" for share in shares))
    ours = [TokenBatchSampler(source, target, max_tokens=limit).padding() for limit in options.max_tokens]
    print(f"{'token batches (ours)':<30}" + "".join(f"{padding.both:>12.1%}" for padding in ours))
    for limit, padding in zip(options.max_tokens, ours, strict=True):
        print(f"  {limit:,}: {padding}")


def tokenise_synthetic_pairs(pairs: int, vocab_size: int) -> tuple[float, int]:
    """Seconds and peak bytes for reading, tokenising and batching sentences of invented words."""
    import resource

    from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer
    from vanilla_transformer.training.batching import TokenBatchSampler, column_lengths
    from vanilla_transformer.training.data import load_corpus, tokenize
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
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


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


def _in_fresh_process(function, *arguments):
    """Runs where nothing else has used memory before."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


BENCHMARKS = {"data": benchmark_data}


if __name__ == "__main__":
    main()
