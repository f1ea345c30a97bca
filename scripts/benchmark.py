"""Measure what matters, beside the alternatives, in one run.

Token batches of your corpus against other orders, with a vocabulary learned on the way:

    vanilla-benchmark data --train_files data/train --source_lang en --target_lang de --vocab_size 10000

The same, and the cost of a million synthetic pairs and of 4.5 million lengths, the size of WMT14:

    vanilla-benchmark data --train_files data/train --pairs 1000000 --lengths 4500000

Training on identical token batches, beside MarianMT and torch.nn.Transformer, and the memory it takes:

    vanilla-benchmark train --train_files data/train --preset tiny
    vanilla-benchmark memory --preset base --vocab_size 37000

Decoding with the weights of a trained model (or, with --preset, with random ones to a fixed length), beside MarianMT
and, where it is installed, CTranslate2:

    vanilla-benchmark decode --model runs/demo/model --input data/test.en
    vanilla-benchmark decode --preset base --input data/test.en

Systems take turns within each round; a figure is the median over rounds, a ratio that of the two medians, its spread
the least and the greatest ratio within a round. One thread unless --threads says otherwise.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

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


# --- training ---


@dataclass
class TrainBenchmarkArguments:
    """What `benchmark train` measures."""

    preset: str = key("tiny", "Size of the models.")
    vocab_size: int = key(10000, "Pieces of the joint BPE learned from the corpus.")
    max_tokens: int = key(4096, "Tokens a side and batch, padding included.")
    order: Literal["bucketed", "random"] = key("bucketed", "Batches of similar lengths, or of pairs as they come.")
    batches: int = key(4, "Updates of each system in a round.")
    rounds: int = key(5, "Rounds.")
    threads: int = key(1, "Threads of torch.")


def benchmark_train(argv: list[str]) -> None:
    """Updates on identical batches: tokens a second, ratios, share of the peak of matrix products."""
    corpus, options = parse_arguments([CorpusArguments, TrainBenchmarkArguments], __doc__, argv)
    import torch

    from vanilla_transformer.scripts.peers import LEARNERS, configuration, peak_of_products, products_of

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    batches = training_batches(corpus, options)
    config = configuration(options.preset, options.vocab_size)
    systems = {name: make(config) for name, make in LEARNERS.items()}
    for system in systems.values():
        system(batches[0])

    def round_of(system) -> float:
        start = time.perf_counter()
        for batch in batches:
            system(batch)
        return time.perf_counter() - start

    peaks, seconds = [], {name: [] for name in systems}
    for _ in range(options.rounds):
        peaks.append(peak_of_products())
        for name, system in systems.items():
            seconds[name].append(round_of(system))
    tokens = sum(int(batch["attention_mask"].sum() + (batch["labels"] != -100).sum()) for batch in batches)
    products = sum(products_of(config, batch) for batch in batches)
    peak = median(peaks)
    batch = f"{options.order} batches of {options.max_tokens:,} tokens"
    print(f"\n{options.preset}, {batch}, threads: {options.threads}, CPU")
    print(f"{'':<24}{'tokens/s':>10}{'to MarianMT':>14}{'spread':>14}{'of the peak':>13}")
    for name, times in seconds.items():
        share = products / median(times) / peak
        print(f"{name:<24}{tokens / median(times):>10,.0f}{compared(seconds, name, 'MarianMT')}{share:>13.0%}")
    print(f"peak of matrix products {peak / 1e9:.1f} GFLOP/s; tokens of both sides, padding not counted")
    print("not measured on a GPU")


def training_batches(corpus_arguments: CorpusArguments, options: TrainBenchmarkArguments) -> list[dict]:
    """The first batches of the corpus in the asked order, padded."""
    import numpy as np
    from transformers import DataCollatorForSeq2Seq

    from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer
    from vanilla_transformer.training.batching import Limits, TokenBatchSampler, column_lengths, cut
    from vanilla_transformer.training.data import load_corpus, tokenize
    from vanilla_transformer.training.vocabulary import sentences

    text = load_corpus(corpus_arguments, splits=("train",))["train"]
    tokenizer = train_tokenizer(sentences(text, SIDES), vocab_size=options.vocab_size, show_progress=False)
    tokens = tokenize(text, tokenizer)
    source, target = column_lengths(tokens, "input_ids"), column_lengths(tokens, "labels")
    if options.order == "bucketed":
        chosen = list(TokenBatchSampler(source, target, max_tokens=options.max_tokens))
    else:
        order = np.random.default_rng(0).permutation(len(source))
        sizes = cut(source[order], target[order], Limits(options.max_tokens, options.max_tokens))
        chosen = [part.tolist() for part in np.split(order, np.cumsum(sizes)[:-1])]
    collator = DataCollatorForSeq2Seq(tokenizer)
    return [collator([tokens[index] for index in indices]) for indices in chosen[: options.batches]]


def compared(seconds: dict[str, list[float]], name: str, reference: str) -> str:
    """How many times as fast as the reference: the ratio of medians, and its spread over the rounds."""
    ratios = [theirs / ours for ours, theirs in zip(seconds[name], seconds[reference], strict=True)]
    ratio = median(seconds[reference]) / median(seconds[name])
    return f"{ratio:>14.2f}{f'{min(ratios):.2f}-{max(ratios):.2f}':>14}"


# --- memory ---


@dataclass
class MemoryBenchmarkArguments:
    """What `benchmark memory` measures."""

    preset: str = key("base", "Size of the models.")
    vocab_size: int = key(37000, "Pieces of the vocabulary.")
    max_tokens: int = key(4096, "Tokens a side of the batch.")
    length: int = key(32, "Tokens of each sentence in it.")


def benchmark_memory(argv: list[str]) -> None:
    """Peak memory of a few updates, each system in a process of its own."""
    (options,) = parse_arguments([MemoryBenchmarkArguments], __doc__, argv)
    from vanilla_transformer.scripts.peers import LEARNERS

    peaks = {name: _in_fresh_process(peak_of_training, name, options) for name in LEARNERS}
    print(f"\n{options.preset}, {options.vocab_size:,} pieces, {options.max_tokens:,} tokens a side, float32, CPU")
    print(f"{'':<24}{'peak':>12}{'to MarianMT':>14}")
    for name, peak in peaks.items():
        print(f"{name:<24}{peak / 2**20:>8,.0f} MiB{peak / peaks['MarianMT']:>14.2f}")
    print("weights, gradients, Adam's moments and activations; not what Python and its libraries take themselves")


def peak_of_training(name: str, options: MemoryBenchmarkArguments) -> int:
    """Bytes beyond what the process took before there was a model."""
    import resource

    import torch

    from vanilla_transformer.scripts.peers import LEARNERS, configuration

    shape = (options.max_tokens // options.length, options.length)
    ids = torch.randint(4, options.vocab_size, shape)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    learner = LEARNERS[name](configuration(options.preset, options.vocab_size))
    for _ in range(2):
        learner({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids})
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


# --- decoding ---


@dataclass
class DecodeBenchmarkArguments:
    """What `benchmark decode` measures."""

    input: list[str] = key([], "Text to translate, a sentence a line.")
    model: str | None = key(None, "A trained model; all systems get its weights.")
    preset: str | None = key(None, "Random weights of this size in its place, decoded to a fixed length.")
    vocab_size: int = key(10000, "Pieces of a vocabulary learned from the text, for --preset.")
    sentences: int = key(200, "How many lines of it.")
    batch_size: int = key(32, "Sentences in a batch; the Translator makes its own.")
    length: int = key(20, "Tokens of each translation, for --preset.")
    num_beams: list[int] = key([4, 1], "Beams to measure with; 1 is greedy.")
    rounds: int = key(3, "Rounds.")
    threads: int = key(1, "Threads of torch and CTranslate2.")

    def __post_init__(self):
        if bool(self.model) == bool(self.preset):
            raise ValueError("Give either --model or --preset: what shall decode?")
        if not self.input:
            raise ValueError("Give --input: text to translate.")


def benchmark_decode(argv: list[str]) -> None:
    """Translation of the same sentences with the same weights: sentences a second and ratios."""
    (options,) = parse_arguments([DecodeBenchmarkArguments], __doc__, argv)
    import torch

    from vanilla_transformer.scripts.peers import decoders

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    for beams in options.num_beams:
        systems, number = decoders(options, beams)
        seconds = {name: [] for name in systems}
        for system in systems.values():
            system()
        for _ in range(options.rounds):
            for name, system in systems.items():
                start = time.perf_counter()
                system()
                seconds[name].append(time.perf_counter() - start)
        what = options.model or f"{options.preset}, random weights, {options.length} tokens each"
        print(f"\n{what}; beam {beams}, {number} sentences, threads: {options.threads}, CPU")
        print(f"{'':<34}{'sentences/s':>12}{'to MarianMT':>14}{'spread':>14}")
        for name, times in seconds.items():
            print(f"{name:<34}{number / median(times):>12,.1f}{compared(seconds, name, 'MarianMT generate')}")
    print("not measured on a GPU")


BENCHMARKS = {
    "data": benchmark_data,
    "train": benchmark_train,
    "memory": benchmark_memory,
    "decode": benchmark_decode,
}


if __name__ == "__main__":
    main()
