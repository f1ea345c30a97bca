"""Measure what matters, beside the alternatives, in one run.

Token batches of your corpus against other orders, with a vocabulary learned on the way; the same with the cost of a
million synthetic pairs and of 4.5 million lengths, the size of WMT14:

    vanilla-benchmark data --train_files data/train --source_lang en --target_lang de --vocab_size 10000
    vanilla-benchmark data --train_files data/train --pairs 1000000 --lengths 4500000

Training on identical token batches, beside MarianMT and torch.nn.Transformer; how its cost grows with batch, length
and layers; and the memory it takes:

    vanilla-benchmark train --train_files data/train --preset tiny
    vanilla-benchmark growth --preset tiny
    vanilla-benchmark memory --preset base --vocab_size 37000

Training end to end, beside the library's own trainer with MarianMT and batches of a fixed size:

    vanilla-benchmark end_to_end --train_files data/train --preset tiny

Translation from text to text with the weights of a trained model (or, with --preset, with random ones to a fixed
length), beside MarianMT and, where they are installed, CTranslate2 and ONNX Runtime:

    vanilla-benchmark decode --model runs/demo/model --input data/test.en --references data/test.de
    vanilla-benchmark decode --preset base --input data/test.en

Systems take turns within each round; a figure is the median over rounds, a ratio the median of those within a round,
its spread the least and the greatest of them. One thread unless --threads says otherwise. A GPU is used where there
is one (--device, --dtype bfloat16, --compile); tables say where it was not. With --output_dir the figures
(results.json) and a picture of them are kept.
"""

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from vanilla_transformer.training.arguments import errors_as_sentences, key


if TYPE_CHECKING:  # imported where it is needed: --help needs none of it
    from concurrent.futures import ProcessPoolExecutor

    import torch


# Each is a module of this folder.
BENCHMARKS = ("data", "train", "end_to_end", "growth", "memory", "decode")
RESULTS, PICTURE = "results.json", "picture.png"
# How a ratio and its spread are headed and written.
RATIO = {"to MarianMT": "{:.2f}", "spread": "{0[0]:.2f}-{0[1]:.2f}"}


def main(argv: list[str] | None = None) -> None:
    argv = list(sys.argv[1:] if argv is None else argv)
    with errors_as_sentences():
        if argv and argv[0] in BENCHMARKS:
            import_module(f"vanilla_transformer.scripts.benchmarks.{argv[0]}").main(argv[1:])
        elif not argv or argv[0] in ("-h", "--help"):
            print(f"usage: vanilla-benchmark {{{','.join(BENCHMARKS)}}} [options]\n\n{__doc__}")
            print("vanilla-benchmark NAME --help lists the options.")
        else:
            raise ValueError(f"There is no benchmark {argv[0]!r}: choose one of {', '.join(BENCHMARKS)}.")


@dataclass
class OutputArguments:
    """Where figures are kept."""

    output_dir: str | None = key(None, f"Folder for the figures ({RESULTS}) and a picture; by default none is kept.")
    overwrite: bool = key(False, "Replace a measurement that is already there.")


@dataclass
class MeasurementArguments(OutputArguments):
    """How often, where and in which numbers anything is measured."""

    rounds: int = key(5, "Rounds.")
    threads: int = key(1, "Threads of torch and of other engines.")
    device: str | None = key(None, "Where to run, for example cpu or cuda:1; a GPU if there is one.")
    dtype: Literal["float32", "bfloat16"] = key(
        "float32", "Type of the arithmetic: while training by autocast, else also of the weights."
    )

    def __post_init__(self):
        for name in ("rounds", "threads"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")


# --- measuring ---


def begin(options: MeasurementArguments) -> "torch.device":
    """Sets threads and seed; returns where to measure."""
    import torch

    from vanilla_transformer.translation import find_device

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    return find_device(options.device)


def take_turns(systems: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[Any]]:
    """What each system returns in each round. Their turns alternate, so that whatever else the machine is doing meets
    all of them alike."""
    results: dict[str, list[Any]] = {name: [] for name in systems}
    for _ in range(rounds):
        for name, system in systems.items():
            results[name].append(system())
    return results


def seconds_of(work: Callable[[], Any], device: "torch.device") -> float:
    """The time until all of the work is done. A GPU works on while Python is ahead of it: its own clock is read."""
    import torch

    if device.type == "cuda":
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        first.record()
        work()
        last.record()
        torch.cuda.synchronize(device)
        return first.elapsed_time(last) / 1000
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compared(seconds: dict[str, list[float]], reference: str) -> dict[str, dict[str, Any]]:
    """How many times as fast as the reference each system is: the median of the ratios within a round, and the least
    and the greatest of them."""
    rows = {}
    for name, times in seconds.items():
        ratios = [theirs / ours for ours, theirs in zip(times, seconds[reference], strict=True)]
        rows[name] = {"to MarianMT": median(ratios), "spread": [min(ratios), max(ratios)]}
    return rows


def process(prepare: Callable | None = None, *arguments) -> "ProcessPoolExecutor":
    """A process that prepares itself and then runs what is submitted to it, one thing after the other."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=prepare, initargs=arguments)


def in_fresh_process(function: Callable, *arguments):
    """Runs where nothing else has used memory before."""
    with process() as fresh:
        return fresh.submit(function, *arguments).result()


def peak_memory(device: "torch.device | None" = None) -> int:
    """Bytes that this process has held at most: on a GPU those of torch's tensors, else all there are."""
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.is_file():  # getrusage would count what the process had before it was this program: its parent's memory
        (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def conditions(options: MeasurementArguments, device: "torch.device") -> str:
    """For titles: what figures of speed depend on besides the systems."""
    import torch

    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    compiled = ", compiled" if getattr(options, "compile", False) else ""
    return f"{options.dtype}{compiled}, threads: {options.threads}, {where}"


def not_on_gpu(device: "torch.device") -> list[str]:
    """For notes: what readers must not take these figures for."""
    return [] if device.type == "cuda" else ["Not measured on a GPU."]


# --- showing ---


@dataclass
class Table:
    """Figures of several systems.

    Args:
        title: What was measured, and under which conditions.
        formats: The columns, and how their figures are written.
        rows: The figures of each system; what it has none of is left out.
        drawn: The columns that a picture shows.
        reference: The system that others are compared with.
        notes: What a reader must know besides.
    """

    title: str
    formats: dict[str, str]
    rows: dict[str, dict[str, Any]]
    drawn: list[str] = field(default_factory=list)
    reference: str | None = None
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [["", *self.formats]]
        for name, row in self.rows.items():
            written = (form.format(row[head]) if head in row else "-" for head, form in self.formats.items())
            lines.append([name, *written])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
        ]
        return "\n".join([self.title, *aligned, *self.notes])


def report(
    options: OutputArguments, tables: Iterable[Table], draw: Callable[[list[Table], Path], None] | None = None
) -> None:
    """Prints tables as they are measured, and keeps them with their picture where that is asked for.

    Args:
        options: Where to keep them.
        tables: The tables; each is measured when it is asked for.
        draw: Draws them; by default bars.
    """
    from vanilla_transformer.atomic_writes import whole_folder, write_json
    from vanilla_transformer.training.run_directory import versions

    place = nullcontext()
    if options.output_dir:
        place = whole_folder(options.output_dir, made_of=(RESULTS, PICTURE), overwrite=options.overwrite)
    with place as folder:  # refused before anything is measured
        found = []
        for table in tables:
            print(f"\n{table}", flush=True)
            found.append(table)
        if folder is not None:
            kept = [{name: part for name, part in asdict(table).items() if name != "formats"} for table in found]
            about = {"command": sys.argv, "versions": versions("ctranslate2", "onnxruntime")}
            write_json(folder / RESULTS, {**about, "tables": kept})
            (draw or draw_bars)(found, folder / PICTURE)
    if options.output_dir:
        print(f"\neverything in {options.output_dir}")


def draw_bars(tables: list[Table], picture: Path) -> None:
    """A panel for each column that is to be drawn."""
    from vanilla_transformer.training.plots import Bars, plot_bars

    panels = []
    for table in tables:
        for head in table.drawn:
            values = {name: row[head] for name, row in table.rows.items() if head in row}
            spreads = {name: tuple(row["spread"]) for name, row in table.rows.items() if "spread" in row}
            label = "times as fast as MarianMT" if spreads else head
            panels.append(Bars(table.title, label, values, spreads, table.formats[head], table.reference))
    plot_bars(panels, picture)


if __name__ == "__main__":
    main()
