"""Engines that translate the shards of a corpus: processes of this computer, or a Ray cluster.

Any process of this computer that runs the same command on the same folder helps, too, so torchrun and
`accelerate launch` need nothing of their own here. Each job of an array is given its own shards (`--only_shards`).
"""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from logging import WARNING, getLogger
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, ClassVar, Literal

from vanilla_transformer.bulk_translation.corpus_translation import CorpusTranslation, ShardWorker
from vanilla_transformer.bulk_translation.shards import Shards
from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.engines.hardware import number_of_threads, set_number_of_threads
from vanilla_transformer.safe_files.standard_streams import on_terminal


PROGRESS_SECONDS = 1.0


@dataclass
class WorkerArguments:
    """Who translates the shards."""

    help_group: ClassVar[str] = "workers"

    processes: int | None = key(
        None,
        "Processes that translate at the same time, with a model each; with --engine ray those of the whole cluster. "
        "Default: 1, with Ray one for each GPU, or for each CPU if there are none.",
    )
    engine: Literal["processes", "ray"] = key(
        "processes", "What runs them: processes of this computer, or a Ray cluster, which needs ray[data]."
    )

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise ValueError(f"processes={self.processes} must be at least 1.")
        if launched() and (self.processes is not None or self.engine != "processes"):
            raise ValueError("The launcher starts the processes already: leave out --processes and --engine.")


def launched() -> bool:
    """Whether torchrun or Accelerate has started several processes, of which this is one."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Whether this process speaks for those that a launcher has started."""
    return os.environ.get("RANK", "0") == "0"


def translate_shards(translation: CorpusTranslation, workers: WorkerArguments) -> None:
    """Translates all shards of a corpus that are not done yet, and shows the progress."""
    share_cores(workers.processes if workers.engine == "processes" else None)
    ENGINES[workers.engine](translation, workers.processes)


def share_cores(processes: int | None) -> None:
    """Divides the cores between processes, unless OMP_NUM_THREADS does."""
    if processes is not None and "OMP_NUM_THREADS" not in os.environ:
        set_number_of_threads(max(number_of_threads() // processes, 1))  # also of the processes that this one starts


# --- processes of this computer ---


def translate_in_processes(translation: CorpusTranslation, processes: int | None) -> None:
    """Translates in this process and in others beside it. If one of them dies, the rest does its shards."""
    with _helpers(translation, (processes or 1) - 1) as call:
        translator = translation.begin()
        if translation.shards.missing():
            with progress_shown(translation.shards):
                call(translation.shards)
                ShardWorker(translation, translator).work()


@contextmanager
def _helpers(translation: CorpusTranslation, number: int) -> Iterator[Callable[[Shards], None]]:
    """Starts other processes, which load the model, and gives a function that calls them to work."""
    context = multiprocessing.get_context("spawn")  # a forked process can't use the threads and the GPU of this one
    pipes = [context.Pipe(duplex=False) for _ in range(number)]
    helpers: list[BaseProcess] = [
        context.Process(target=_help, args=(translation, receiver, rank), name=f"worker {rank}", daemon=True)
        for rank, (receiver, _) in enumerate(pipes, start=1)
    ]

    def call(shards: Shards) -> None:
        for _, sender in pipes:
            with suppress(BrokenPipeError):  # it has died
                sender.send(shards)

    try:
        for helper, (receiver, _) in zip(helpers, pipes, strict=True):
            helper.start()
            receiver.close()
        yield call
    except BaseException:
        for helper in helpers:
            helper.terminate()
        raise
    finally:
        for _, sender in pipes:
            sender.close()
    for helper in helpers:
        helper.join()  # they see that all is done
    if failed := [helper.name for helper in helpers if helper.exitcode]:
        print(f"{', '.join(failed)} ended early; the others did the rest", file=sys.stderr)


def _help(translation: CorpusTranslation, calls: Connection, rank: int) -> None:
    """The main function of another process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["LOCAL_RANK"] = str(rank)
    with errors_as_sentences(), suppress(EOFError):  # without a call, there is nothing to do
        worker = ShardWorker(translation)
        translation.shards = calls.recv()
        worker.work()


def _end_with_parent() -> None:
    """Ends this process if the first one is killed: nobody would see it, or end it."""
    if parent := multiprocessing.parent_process():
        wait([parent.sentinel])
    os._exit(1)


# --- Ray ---


class RayWorker:
    """Translates the shards that Ray Data gives it.

    Args:
        translation: What to translate.
        working_directory: The folder in which its paths are valid.
    """

    def __init__(self, translation: CorpusTranslation, working_directory: str):
        os.chdir(working_directory)
        self.worker = ShardWorker(translation)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        for number in batch["number"]:
            self.worker.work_on(int(number))
        return batch


def translate_on_ray(translation: CorpusTranslation, processes: int | None) -> None:
    """Translates each shard as a task of Ray Data, on the cluster of RAY_ADDRESS or on a local one."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("--engine ray needs Ray, which is not installed: pip install 'ray[data]'.") from error
    translation.begin()
    if not translation.shards.missing():
        return
    started_here = not ray.is_initialized()
    if started_here:
        ray.init(log_to_driver=False, logging_level=WARNING, include_dashboard=False)
    getLogger("ray.data").setLevel(WARNING)
    try:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        ray.data.DataContext.get_current().enable_progress_bars = False
        numbers = [{"number": number} for number in translation.shards.missing()]
        workers = min(processes or gpus or int(resources["CPU"]), len(numbers))
        tasks = ray.data.from_items(numbers, override_num_blocks=len(numbers)).map_batches(
            RayWorker,
            fn_constructor_args=(translation, os.getcwd()),
            batch_size=1,
            num_cpus=1,
            num_gpus=1 if gpus else 0,
            compute=ray.data.ActorPoolStrategy(size=workers),
        )
        with progress_shown(translation.shards):
            for _ in tasks.iter_rows():
                pass
    finally:
        if started_here:
            ray.shutdown()


ENGINES: dict[str, Callable[[CorpusTranslation, int | None], None]] = {
    "processes": translate_in_processes,
    "ray": translate_on_ray,
}


# --- progress ---


@contextmanager
def progress_shown(shards: Shards) -> Iterator[None]:
    """Shows the rows that any process has done: as a bar on a terminal, else as a line for each finished shard."""
    stopped = threading.Event()
    thread = threading.Thread(target=_show_progress, args=(shards, stopped), daemon=True)
    if is_first():
        thread.start()
    try:
        yield
    finally:
        stopped.set()
        if is_first():
            thread.join()


def _show_progress(shards: Shards, stopped: threading.Event) -> None:
    from tqdm.auto import tqdm

    before, is_terminal = -1, on_terminal(sys.stderr)
    with tqdm(total=shards.rows, desc="translating", unit=" rows", disable=not is_terminal) as bar:
        ended = False
        while not ended:
            ended = stopped.wait(PROGRESS_SECONDS)
            finished, rows = shards.progress()
            bar.update(max(rows - bar.n, 0))
            if finished != before and not is_terminal:
                share = rows / max(shards.rows, 1)
                print(f"{finished} of {len(shards.ranges)} shards done, {share:.0%} of the rows", file=sys.stderr)
            before = finished
