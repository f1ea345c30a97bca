"""What happens beside the training loop: epochs, NaN, Ctrl-C, metrics on disk, the progress bar."""

import json
import math
import signal
import threading
import time
from pathlib import Path

import torch
from transformers import ProgressCallback, TrainerCallback

from vanilla_transformer.training.averaging import checkpoints
from vanilla_transformer.training.plots import plot_learning_curve, read_metrics


class SetEpoch(TrainerCallback):
    """Tells the sampler its epoch before batches are skipped: after a resume, `Trainer` tells it too late."""

    def __init__(self, trainer):
        self.trainer = trainer

    def on_epoch_begin(self, args, state, control, **kwargs):
        epoch = int(state.epoch or 0)
        self.trainer.sampler.set_epoch(epoch)
        if hasattr(self.trainer, "noisy_collator"):
            self.trainer.noisy_collator.set_epoch(epoch)


class StopAtNan(TrainerCallback):
    """Ends a run whose loss is not a number any more: everything after it is lost, and nothing after it is saved."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            raise not_a_number(state.global_step, args.output_dir)


def not_a_number(step: int, output_dir: str) -> ValueError:
    whole = checkpoints(output_dir)
    last = f"The last good checkpoint is {whole[-1]}." if whole else "There was no checkpoint yet."
    return ValueError(
        f"The loss stopped being a number before step {step}. {last} A lower rate_factor (or learning_rate), more "
        "warmup_steps or a max_grad_norm of 1 usually help."
    )


class StopGently(TrainerCallback):
    """On Ctrl-C finishes the step, saves a checkpoint and stops. A second Ctrl-C stops at once."""

    def __init__(self):
        self.asked = False
        self._previous = None

    def _ask(self, number, frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\nStopping after this step and saving. Press Ctrl-C again to stop at once.", flush=True)

    def on_train_begin(self, args, state, control, **kwargs):
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._ask)

    def on_step_end(self, args, state, control, **kwargs):
        if args.world_size > 1:  # the signal reaches the processes at different steps: all stop when one was asked
            flag = torch.tensor(int(self.asked), device=args.device)
            torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
            self.asked = bool(flag.item())
        if self.asked:
            control.should_save = control.should_training_stop = True

    def on_train_end(self, args, state, control, **kwargs):
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)


class MetricsFile(TrainerCallback):
    """Appends each log line to metrics.jsonl and draws the learning curve anew after each evaluation."""

    def __init__(self, folder: str | Path):
        self.path = Path(folder) / "metrics.jsonl"

    def on_train_begin(self, args, state, control, **kwargs):
        # What a resumed run is about to do again is taken out, so that every step stands there once.
        if state.is_world_process_zero and self.path.is_file():
            kept = [line for line in read_metrics(self.path) if line["step"] <= state.global_step]
            self.path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero and logs:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            entry = {"step": state.global_step, **logs}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def on_evaluate(self, args, state, control, **kwargs):
        self._draw(state)

    def on_train_end(self, args, state, control, **kwargs):
        self._draw(state)

    def _draw(self, state) -> None:
        if state.is_world_process_zero:
            plot_learning_curve(self.path, self.path.with_name("learning_curve.png"))


class TokensPerSecond(ProgressCallback):
    """The library's progress bar, which shows steps and time left, with the speed in source tokens beside them."""

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        self._since, self._seen = time.perf_counter(), state.num_input_tokens_seen

    def on_log(self, args, state, control, logs=None, **kwargs):
        super().on_log(args, state, control, logs=logs, **kwargs)
        if self.training_bar is None or "loss" not in (logs or {}):
            return
        now, seen = time.perf_counter(), state.num_input_tokens_seen
        speed = (seen - self._seen) / (now - self._since)
        self.training_bar.set_postfix_str(f"{speed:,.0f} source tokens/s")
        self._since, self._seen = now, seen
