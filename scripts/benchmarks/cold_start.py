"""Measure the first second: fresh processes, from their start to their first answer, and their peak memory.

    vanilla benchmark start --rounds 5
    vanilla benchmark start --model runs/demo/model --text "A dog runs."

Each row is a process of its own: the help, one sentence by `vanilla translate` with the default engine and in torch,
the server until it listens, and as the reference ten lines of Python with CTranslate2 and tokenizers on the same
converted model. The model is converted before.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.saved_files import CAPTIONS, find_model
from vanilla_transformer.scripts.benchmarks.measuring import take_turns
from vanilla_transformer.scripts.benchmarks.report import OutputArguments, Table, report
from vanilla_transformer.scripts.benchmarks.serving_speed import address_of


SCRIPT = """
import sys
import ctranslate2
from tokenizers import Tokenizer

model, converted = sys.argv[1:]
tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
engine = ctranslate2.Translator(converted, intra_threads=1)
tokens = tokenizer.encode(sys.stdin.read().strip()).tokens
(result,) = engine.translate_batch([tokens], beam_size=5)
print(tokenizer.decode([tokenizer.token_to_id(token) for token in result.hypotheses[0]]))
"""
# Runs a command, and says its seconds and peak memory. A process counts the memory of the one that started it, so this
# one is small.
STOPWATCH = """
import os, sys, time
start = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", 1, 0)])
_, status, usage = os.wait4(pid, 0)
print([time.perf_counter() - start, usage.ru_maxrss / 1024, status])
"""
COLUMNS = {"seconds": "{:.2f}", "spread": "{0[0]:.2f}-{0[1]:.2f}", "peak MB": "{:,.0f}"}
REFERENCE = "ten lines of Python"


@dataclass
class StartBenchmarkArguments(OutputArguments):
    """The model and the sentence."""

    model: str = key(CAPTIONS, "Folder of the model, with a tokenizer.json.")
    text: str = key("A dog runs.", "The sentence.")
    rounds: int = key(5, "Number of rounds.")
    backends: list[str] = key(["auto", "torch"], "Engines to measure.")

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"--rounds {self.rounds} must be at least 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([StartBenchmarkArguments], __doc__, argv)
        report(options, measure(options))


def measure(options: StartBenchmarkArguments) -> Iterator[Table]:
    """One table."""
    model = str(find_model(options.model))
    converted = Translator.from_pretrained(model, backend="ctranslate2", device="cpu").backend
    program = [sys.executable, "-m", "vanilla_transformer"]
    run = partial(run_fresh, text=options.text)
    systems: dict[str, Callable[[], tuple[float, float]]] = {
        REFERENCE: partial(run, [sys.executable, "-c", SCRIPT, model, str(getattr(converted, "folder", ""))]),
        "vanilla --help": partial(run, [*program, "--help"]),
    }
    for backend in options.backends:
        words = ["--model", model, "--backend", backend]
        systems[f"vanilla translate, {backend}"] = partial(run, [*program, "translate", *words])
        systems[f"vanilla serve, {backend}"] = partial(start_server, [*program, "serve", "--port", "0", *words])
    for system in systems.values():
        system()  # the disk's cache
    yield Table(
        f"{options.model}; fresh processes, median of {options.rounds} rounds",
        COLUMNS,
        {name: row(results) for name, results in take_turns(systems, options.rounds).items()},
        drawn=["seconds"],
        reference=REFERENCE,
        notes=["vanilla serve: until it listens. Peak memory: of the process, libraries included."],
    )


def row(results: list[tuple[float, float]]) -> dict[str, Any]:
    seconds, megabytes = map(list, zip(*results, strict=True))
    spread = [min(seconds), max(seconds)]
    return {"seconds": median(seconds), "spread": spread, "peak MB": median(megabytes)}


def run_fresh(command: list[str], text: str) -> tuple[float, float]:
    """Seconds and megabytes of a command that reads a text."""
    stopwatch = [sys.executable, "-S", "-c", STOPWATCH, *command]
    done = subprocess.run(stopwatch, input=text + "\n", capture_output=True, text=True, check=True)
    seconds, megabytes, status = json.loads(done.stdout)
    if status:
        raise ValueError(f"{' '.join(command[2:])} failed: {done.stderr.strip().splitlines()[-1]}")
    return seconds, megabytes


def start_server(command: list[str]) -> tuple[float, float]:
    """Seconds until a server listens, and its megabytes then."""
    start = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ}) as process:
        try:
            address_of(process)
            seconds = time.perf_counter() - start
            status = Path(f"/proc/{process.pid}/status").read_text()
            (kibibytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
            return seconds, int(kibibytes) / 1024
        finally:
            process.terminate()
            process.communicate()


if __name__ == "__main__":
    main()
