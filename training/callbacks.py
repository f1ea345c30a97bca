"""Callbacks of the trainer: epochs, NaN, Ctrl-C, metrics on disk, the progress bar."""

import json
import math
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from transformers import ProgressCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from vanilla_transformer.safe_files.atomic_writes import write_lines
from vanilla_transformer.training.reports.plots import plot_learning_curve, read_metrics
from vanilla_transformer.training.run_folder.checkpoints import not_a_number


if TYPE_CHECKING:
    from vanilla_transformer.training.trainer import TranslationTrainer


class SetEpoch(TrainerCallback):
    """Sets the sampler's epoch before batches are skipped: after a resume, `Trainer` sets it too late.

    Args:
        trainer: The trainer, with its `sampler` and perhaps a `noisy_collator`.
    """

    def __init__(self, trainer: "TranslationTrainer"):
        self.trainer = trainer

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        epoch = int(state.epoch or 0)
        self.trainer.sampler.set_epoch(epoch)
        if hasattr(self.trainer, "noisy_collator"):
            self.trainer.noisy_collator.set_epoch(epoch)


class StopAtNan(TrainerCallback):
    """Ends a run when its loss is not a number, before a checkpoint of it is saved."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            raise not_a_number(args.output_dir, state.global_step)


class StopGently(TrainerCallback):
    """Finishes the step, saves a checkpoint and stops on Ctrl-C or SIGTERM. A second Ctrl-C stops at once.

    A launcher such as torchrun passes its signals on to its processes, and the terminal or the scheduler may have sent
    them the same signal. So SIGTERM never counts as a second signal, and Ctrl-C only after `REPEATS` seconds.
    """

    REPEATS = 2.0
    ASKS_EVERY = 10
    """Updates between two questions to the other processes, for whose answer the host waits."""

    def __init__(self) -> None:
        self.requested = False
        self.saves_extra = False
        """Whether the next checkpoint is one that an uninterrupted run would not save."""
        self._since = 0.0
        self._previous_handlers: dict[int, Any] = {}

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT and time.monotonic() > self._since + self.REPEATS:
            raise KeyboardInterrupt
        if not self.requested:
            self._since, self.requested = time.monotonic(), True
            print("\nStopping after this step and saving. Press Ctrl-C again to stop at once.", flush=True)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[number] = signal.signal(number, self._request)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if args.world_size > 1:  # the signal may reach the processes at different steps: all stop at the same one
            if state.global_step % self.ASKS_EVERY and state.global_step < state.max_steps:
                return
            flag = torch.tensor(int(self.requested), device=args.device)
            torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
            if flag.item() and not self.requested:
                self._since, self.requested = time.monotonic(), True
        if self.requested:
            self.saves_extra = not control.should_save
            control.should_save = control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        while self._previous_handlers:
            signal.signal(*self._previous_handlers.popitem())


class MetricsFile(TrainerCallback):
    """Appends each log line to metrics.jsonl and draws the learning curve after each evaluation.

    Args:
        folder: The folder of the run.
    """

    def __init__(self, folder: str | Path):
        self.path = Path(folder) / "metrics.jsonl"

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # A resumed run repeats the steps after its checkpoint: their old lines are removed.
        if state.is_world_process_zero and self.path.is_file():
            kept = [line for line in read_metrics(self.path) if line["step"] <= state.global_step]
            write_lines(self.path, [json.dumps(line) for line in kept])

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero and logs:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            entry = {"step": state.global_step, **logs}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._draw(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._draw(state)

    def _draw(self, state: TrainerState) -> None:
        if state.is_world_process_zero:
            plot_learning_curve(self.path, self.path.with_name("learning_curve.png"))


class TokensPerSecond(ProgressCallback):
    """The library's progress bar, with the speed in source tokens per second."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        self._since, self._seen = time.perf_counter(), state.num_input_tokens_seen

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().on_log(args, state, control, logs=logs, **kwargs)
        if self.training_bar is None or "loss" not in (logs or {}):
            return
        now, seen = time.perf_counter(), state.num_input_tokens_seen
        speed = (seen - self._seen) / (now - self._since)
        self.training_bar.set_postfix_str(f"{speed:,.0f} source tokens/s")
        self._since, self._seen = now, seen
