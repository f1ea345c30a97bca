"""Measure the server under load, beside the same model offline.

    vanilla benchmark serve --model runs/demo/model --input data/test.en --clients 32
    vanilla benchmark serve --model runs/demo/model --input data/test.en --backend ctranslate2 --quantization int8

Each client sends one sentence, waits for the answer, and sends the next. The server runs in a process of its own, on
the same machine as the clients. The reference is `Translator` on all sentences at once, with the same backend and as
many threads. The last row is the server without dynamic batching: one sentence at a time, as LibreTranslate's server
translates. Every answer is compared with the offline translation; the table counts those that differ.
"""

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any

import torch

from vanilla_transformer import Translator
from vanilla_transformer.command_line.inference_arguments import LoadingArguments
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.engines.hardware import set_number_of_threads
from vanilla_transformer.safe_files.input_files import lines_in_files
from vanilla_transformer.scripts.benchmarks.measuring import take_turns
from vanilla_transformer.scripts.benchmarks.report import OutputArguments, Table, report


OFFLINE = "Translator, all at once"
COLUMNS = {
    "sentences/s": "{:,.1f}",
    "to offline": "{:.2f}",
    "spread": "{0[0]:.2f}-{0[1]:.2f}",
    "p50 ms": "{:,.0f}",
    "p95 ms": "{:,.0f}",
    "differ": "{:,}",
}


@dataclass
class ServeBenchmarkArguments(OutputArguments):
    """The model, the text and the clients."""

    model: str = key("runs/demo/model", "Folder of the model, or its name on the Hub.")
    input: list[str] = key([], "Files with text to translate, one sentence per line.")
    sentences: int = key(1000, "Number of sentences.")
    clients: int = key(32, "Clients that send at the same time.")
    rounds: int = key(3, "Number of rounds.")
    threads: int = key(1, "Threads of the engine, offline and in the server.")

    def __post_init__(self) -> None:
        if not self.input:
            raise ValueError("Give --input: the text to translate.")
        for name in ("sentences", "clients", "rounds", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")


@dataclass
class Run:
    """One round of one system: its seconds, the translations, and the seconds until each answer."""

    seconds: float
    translations: list[str]
    latencies: list[float] = field(default_factory=list)


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        options, loading = parse_arguments([ServeBenchmarkArguments, LoadingArguments], __doc__, argv)
        report(options, measure(options, loading))


def measure(options: ServeBenchmarkArguments, loading: LoadingArguments) -> Iterator[Table]:
    """One table: offline, the server, and the server without batching."""
    set_number_of_threads(options.threads)
    torch.set_num_threads(options.threads)
    lines = [line.strip() for line in lines_in_files(options.input) if line.strip()][: options.sentences]
    translator = Translator.from_pretrained(options.model, **vars(loading))
    source, target = map(str, translator.languages)
    with serving(options, loading) as batching, serving(options, loading, "--batch_sentences", "1") as alone:
        systems = {
            OFFLINE: lambda: offline(translator, lines),
            f"server, {options.clients} clients": lambda: load(batching, lines, source, target, options.clients),
            f"server without batching, {options.clients} clients": lambda: load(
                alone, lines, source, target, options.clients
            ),
        }
        for system in systems.values():
            system()  # warms up
        runs = take_turns(systems, options.rounds)
    yield Table(
        f"{options.model}; {len(lines):,} sentences, {loading.backend} {loading.quantization}, threads: "
        f"{options.threads}, CPU",
        COLUMNS,
        {name: row(results, runs[OFFLINE]) for name, results in runs.items()},
        drawn=["to offline"],
        reference=OFFLINE,
        notes=["Latency: from sending a sentence to its answer. Differ: answers unlike the offline translation."],
    )


def row(runs: Sequence[Run], reference: Sequence[Run]) -> dict[str, Any]:
    """Speed, latency and differences of a system over all rounds."""
    ratios = [theirs.seconds / ours.seconds for ours, theirs in zip(runs, reference, strict=True)]
    values: dict[str, Any] = {
        "sentences/s": median(len(run.translations) / run.seconds for run in runs),
        "to offline": median(ratios),
        "spread": [min(ratios), max(ratios)],
    }
    if runs[0].latencies:
        centiles = quantiles([1000 * seconds for run in runs for seconds in run.latencies], n=100)
        expected = reference[0].translations
        differ = [answer != text for run in runs for answer, text in zip(run.translations, expected, strict=True)]
        values |= {"p50 ms": centiles[49], "p95 ms": centiles[94], "differ": sum(differ)}
    return values


def offline(translator: Translator, lines: list[str]) -> Run:
    start = time.perf_counter()
    translations = list(translator(lines))
    return Run(time.perf_counter() - start, translations)


def load(address: str, lines: list[str], source: str, target: str, clients: int) -> Run:
    """Translates lines through a server, with several clients that take the next line when they have an answer."""
    return asyncio.run(_load(address, lines, source, target, clients))


async def _load(address: str, lines: list[str], source: str, target: str, clients: int) -> Run:
    from aiohttp import ClientSession, TCPConnector  # `datasets` brings it along

    translations, latencies, numbers = [""] * len(lines), [0.0] * len(lines), iter(range(len(lines)))

    async def client(session: ClientSession) -> None:
        for number in numbers:
            start = time.perf_counter()
            query = {"q": lines[number], "source": source, "target": target}
            async with session.post(f"{address}/translate", json=query) as response:
                answer = await response.json()
                if response.status != 200:
                    raise ValueError(f"The server refused {lines[number]!r}: {answer['error']}")
            translations[number] = answer["translatedText"]
            latencies[number] = time.perf_counter() - start

    async with ClientSession(connector=TCPConnector(limit=clients)) as session:
        start = time.perf_counter()
        await asyncio.gather(*(client(session) for _ in range(clients)))
        return Run(time.perf_counter() - start, translations, latencies)


@contextmanager
def serving(options: ServeBenchmarkArguments, loading: LoadingArguments, *more: str) -> Iterator[str]:
    """A server in a process of its own; yields its address."""
    words = ["--model", options.model, "--threads", str(options.threads), "--port", "0", "--page", "false"]
    for name, value in vars(loading).items():
        if value is not None:
            words += [f"--{name}", str(value)]
    command = [sys.executable, "-m", "vanilla_transformer.scripts.serve", *words, *more]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield address_of(process)
        finally:
            process.terminate()
            process.communicate()


def address_of(process: "subprocess.Popen[str]") -> str:
    """Waits until a server listens, and returns its address."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if match := re.search(r"serving at (\S+)", line):
            return match[1]
    raise ValueError(f"The server did not start: {lines[-1].strip() if lines else 'it said nothing'}")


if __name__ == "__main__":
    main()
