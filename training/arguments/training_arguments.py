"""The training keys of a recipe: the library's training arguments with the paper's values, and our additions."""

import json
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from transformers import PreTrainedConfig, Seq2SeqTrainingArguments
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK
from transformers.trainer_utils import SchedulerType

from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.models.label_smoothing import Smoothing
from vanilla_transformer.models.search_options import SearchOptions
from vanilla_transformer.models.spelling import suggestion
from vanilla_transformer.training.data.augmentation import require_rates
from vanilla_transformer.training.evaluation.metrics import require_measures
from vanilla_transformer.training.learning_rate import peak_rate
from vanilla_transformer.training.objectives.cross_entropy import require_objective
from vanilla_transformer.training.precision import computes_bfloat16
from vanilla_transformer.training.waiting import ended_by_signals


# Arguments of the stock trainer that have another name here: name, library's default, what to set instead.
STOCK_ARGUMENTS = [
    ("label_smoothing_factor", 0.0, 'model_config: {"label_smoothing": ...}'),
    ("per_device_train_batch_size", 8, "max_tokens"),
    ("per_device_eval_batch_size", 8, "max_tokens"),
    ("auto_find_batch_size", False, "max_tokens"),
    ("train_sampling_strategy", "random", "nothing: token batches already group pairs of similar length"),
    ("sortish_sampler", False, "nothing: token batches already group pairs of similar length"),
    ("dataloader_drop_last", False, "nothing: every pair is trained on"),
    ("prediction_loss_only", False, "eval_bleu to false"),
    ("batch_eval_metrics", False, "nothing: metrics are computed over the whole set"),
    ("eval_accumulation_steps", None, "nothing: evaluation keeps no logits"),
    ("predict_with_generate", False, "eval_bleu"),
    ("generation_num_beams", None, "num_beams"),
    ("generation_config", None, "num_beams and length_penalty"),
    (
        *("generation_max_length", None),
        f"nothing: translations have at most {SearchOptions.max_extra_tokens} tokens more than their source",
    ),
]


LARGEST_BATCH = 10_000_000  # tokens on each side

# Objectives that a key of the same name selects by its weight, and the usual weight.
WEIGHTED_OBJECTIVES = {"r_drop": 5, "guided_alignment": 0.05}


@dataclass
class TranslationTrainingArguments(Seq2SeqTrainingArguments):
    """The library's training arguments with the paper's values as defaults (sections 5.1 to 5.4), and a few more."""

    help_group: ClassVar[str] = "training"

    if TYPE_CHECKING:  # fields of the library that are set here
        gradient_accumulation_steps: int = 1
        use_cpu: bool = False
        fp16: bool = False

    max_steps: int = key(100_000, "Number of updates; -1 to count num_train_epochs instead.")
    warmup_steps: float = key(4000, "Updates during which the learning rate rises.")
    lr_scheduler_type: SchedulerType | str = key("inverse_sqrt", "Learning rate schedule after the warm-up.")
    adam_beta2: float = key(0.98, "Adam's second beta.")
    adam_epsilon: float = key(1e-9, "Adam's epsilon.")
    max_grad_norm: float = key(0.0, "Clip gradients to this norm; 0, as in the paper, for no clipping.")
    logging_steps: float = key(50, "Updates between two log lines.")
    logging_nan_inf_filter: bool = key(False, "Hide a loss that is not a number; by default it ends the run.")
    report_to: list[str] = key(
        ["tensorboard"], "Loggers besides metrics.jsonl: tensorboard, wandb, trackio and others; none for no other."
    )
    restore_callback_states_from_checkpoint: bool = key(
        True, "Restore the state of callbacks on resume, such as the count of early stopping."
    )
    ddp_find_unused_parameters: bool | None = key(False, "Let DDP look for parameters without a gradient.")
    bf16: bool | str = key(
        False, "Compute in bfloat16; auto: where the hardware has it (AVX512-BF16, AMX, a GPU from Ampere on)."
    )
    bf16_gradients: bool = key(
        False, "Exchange gradients between processes in bfloat16: half the traffic, less precise sums (DDP only)."
    )
    dataloader_num_workers: int = key(
        -1, "Processes beside each training process that make its batches; -1: two for a GPU, none on a CPU."
    )

    max_tokens: int = key(
        25_000, "Maximum source tokens and maximum target tokens in a batch of one process, padding included."
    )
    tokens_per_update: int | None = key(
        None,
        "Maximum source tokens and maximum target tokens of an update, in all its batches and processes; the paper "
        "has 25,000. gradient_accumulation_steps follows from it. Without it, the number of processes multiplies the "
        "update: max_tokens x gradient_accumulation_steps x processes.",
    )
    learning_rate: float | None = key(
        None, "Peak learning rate; by default the paper's, (d_model * warmup_steps)^-0.5, times rate_factor."
    )
    rate_factor: float = key(1.0, "Factor on the paper's learning rate; only without learning_rate.")
    objective: str = key(
        "cross_entropy",
        "What training minimises: cross_entropy (label-smoothed), r_drop or guided_alignment; for model_type "
        "mask_predict, uniform_masking or glancing.",
    )
    smoothing: Smoothing = key(
        "others",
        "Tokens that share the smoothed probability: others (the authors' choice), all, or no_padding.",
    )
    r_drop: float = key(
        0.0,
        "Weight alpha of R-Drop: two passes with different dropout must agree; 5 in its paper. More than 0 selects "
        "objective: r_drop. An update then takes about twice as long.",
    )
    guided_alignment: float = key(
        0.0,
        "Weight of the word links that one attention head learns, from the aligner eflomal; 0.05 in its paper. More "
        "than 0 selects objective: guided_alignment.",
    )
    glancing_ratio: float = key(
        0.5, "For objective glancing: reference tokens shown for each mistake of the model's first pass."
    )
    take_over: bool = key(
        False, "Train in a folder that another computer has locked. Only for one whose process has ended."
    )
    bpe_dropout: float = key(0.0, "Share of BPE merges to skip in training text (BPE only); 0.1 is usual.")
    augmentation: dict | str | None = key(
        None,
        'Adds training pairs in forms that people type, each with its rate, for example {"upper_case": 0.03, "typos": '
        "0.05}: upper_case, title_case, lower_case, no_punctuation, typos, one_clause, two_sentences, copied.",
    )
    prefix_replace: float = key(0.0, "Share of decoder input tokens to replace by random tokens.")
    prefix_drop: float = key(0.0, "Share of decoder input tokens to replace by <unk>.")
    eval_bleu: bool = key(True, "Translate the validation set in each evaluation and compute its BLEU.")
    eval_beams: int | None = key(None, "Beam size for BLEU during training; by default the model's (num_beams).")
    test_measures: list[str] = key(
        ["sacrebleu"], "Measures of the final model: sacrebleu, compound_bleu and others that vanilla evaluate has."
    )
    early_stopping: int | None = key(None, "Stop after this many evaluations without a better BLEU.")
    average_checkpoints: int = key(5, "The final model is the mean of this many last checkpoints; 0: the last one.")
    average_if_better: bool | None = key(
        None,
        "Average checkpoints only if that gives a higher BLEU on the validation set than the last weights. In a short "
        "run with a falling rate, the mean can be worse. By default yes if there is a validation set.",
    )
    ema_decay: float = key(
        0.0, "Decay of an exponential moving average that becomes the final model instead; 0.999 is usual."
    )

    def __post_init__(self) -> None:
        _require_launched_processes()
        self.report_to = [self.report_to] if isinstance(self.report_to, str) else self.report_to or ["none"]
        if self.report_to == ["tensorboard"] and find_spec("tensorboard") is None:
            self.report_to = ["none"]
        _require_loggers(self.report_to)
        for name in ("augmentation", "lr_scheduler_kwargs"):
            setattr(self, name, _mapping(name, getattr(self, name)))
        use_cpu, accelerator = self.use_cpu, torch.accelerator.current_accelerator(check_available=True)
        # The library has bf16 on a CPU only if that is chosen.
        self.use_cpu = use_cpu or accelerator is None
        self._choose_precision("cpu" if self.use_cpu or accelerator is None else accelerator.type)
        with ended_by_signals():  # it waits for the other processes
            super().__post_init__()
            _ = self.device
        self.use_cpu = use_cpu  # the same recipe may be resumed on a GPU
        self._choose_objective()
        self._require_guidable()
        self._require_glancing()
        self._require_learning_rate()
        self._require_own_names()
        self._require_numbers()
        require_measures(self.test_measures)
        require_rates(self.augmentation_rates)
        if self.tokens_per_update is not None:
            self.share_update(self.tokens_per_update)
        if self.early_stopping and (self.eval_strategy == "no" or not self.eval_bleu):
            raise ValueError("early_stopping needs evaluations: set eval_strategy to steps, eval_steps and eval_bleu.")
        if self.average_if_better and (self.ema_decay or not self.average_checkpoints):
            raise ValueError(
                "average_if_better compares the mean of the last checkpoints with the last weights: set "
                "average_checkpoints to 2 or more and ema_decay to 0."
            )
        # Token batches have different widths, so one process cannot join them to dispatch them to the others.
        self.accelerator_config.dispatch_batches = False
        if self.bf16_gradients and self.device.type == "cpu":
            raise ValueError("bf16_gradients=True: torch exchanges gradients in bfloat16 on GPUs only. Leave it out.")
        # Copies from pinned memory do not make the host wait for the device.
        self.accelerator_config.non_blocking = self.dataloader_pin_memory
        # For the speed in the progress bar. (The library's parser does not accept this value as a default.)
        self.include_num_input_tokens_seen = "non_padding"

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the Hub's token out: the library pickles the arguments into every saved folder."""
        return {**vars(self), "hub_token": None}

    @property
    def precision(self) -> str:
        """The type that training computes in, which the launcher may have chosen: float32, bfloat16 or float16."""
        return {"bf16": "bfloat16", "fp16": "float16"}.get(self.mixed_precision, "float32")

    @property
    def loader_options(self) -> dict[str, Any]:
        """How a `DataLoader` makes batches: in workers, and in memory from which a device can copy by itself."""
        on_cpu = self.device.type == "cpu"
        workers = self.dataloader_num_workers
        if workers < 0:
            workers = 0 if on_cpu else 2
        return {
            "num_workers": workers,
            "pin_memory": self.dataloader_pin_memory and not on_cpu,
            "prefetch_factor": self.dataloader_prefetch_factor,
            "persistent_workers": self.dataloader_persistent_workers and workers > 0,
        }

    def _choose_precision(self, device_type: str) -> None:
        if self.bf16 == "auto":
            self.bf16 = not self.fp16 and computes_bfloat16(device_type)
        if not isinstance(self.bf16, bool):
            raise ValueError(f"bf16={self.bf16!r} must be true, false or auto.")
        if self.fp16 and device_type == "cpu":
            raise ValueError("fp16=True: torch trains in float16 on GPUs only. On a CPU, set bf16 to auto instead.")

    def _choose_objective(self) -> None:
        for name, usual in WEIGHTED_OBJECTIVES.items():
            weight = getattr(self, name)
            if weight < 0:
                raise ValueError(f"{name}={weight} must not be negative; {usual} is usual, 0 turns it off.")
            if weight and self.objective == "cross_entropy":
                self.objective = name
        require_objective(self.objective)
        for name, usual in WEIGHTED_OBJECTIVES.items():
            weight = getattr(self, name)
            if (self.objective == name) != bool(weight):
                raise ValueError(
                    f"objective={self.objective!r} and {name}={weight} do not go together: set {name} to a weight "
                    f"such as {usual} for objective {name}, and to 0 for any other."
                )

    def _require_guidable(self) -> None:
        for name in ("bpe_dropout", "gradient_checkpointing"):
            if self.guided_alignment and getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} and guided_alignment={self.guided_alignment} do not go together: "
                    "the links are those of the tokens as they are, learned in one pass. Leave one of them out."
                )

    def _require_glancing(self) -> None:
        default = type(self).glancing_ratio
        if not 0 <= self.glancing_ratio <= 1:
            raise ValueError(f"glancing_ratio={self.glancing_ratio} must be from 0 to 1; {default} is usual.")
        if self.objective != "glancing" and self.glancing_ratio != default:
            raise ValueError(
                f"glancing_ratio={self.glancing_ratio} does nothing with objective={self.objective!r}: leave it out, "
                "or set objective to glancing."
            )

    def _require_learning_rate(self) -> None:
        if self.learning_rate is None and self.lr_scheduler_type != SchedulerType.INVERSE_SQRT:
            raise ValueError(
                f"lr_scheduler_type={SchedulerType(self.lr_scheduler_type).value} needs a learning_rate: the paper's "
                "rate is only for its schedule, inverse_sqrt."
            )
        if self.learning_rate is not None and self.rate_factor != 1.0:
            raise ValueError("learning_rate and rate_factor are both given: rate_factor multiplies the paper's rate.")
        for name in ("learning_rate", "rate_factor"):
            if (rate := getattr(self, name)) is not None and not rate > 0:
                raise ValueError(f"{name}={rate} must be above 0: nothing is learned without a rate.")

    def _require_own_names(self) -> None:
        for name, default, instead in STOCK_ARGUMENTS:
            if getattr(self, name) != default:
                raise ValueError(f"{name} is for the stock trainer: here set {instead}.")
        if self.max_steps > 0 and self.num_train_epochs != 3:  # the library's default
            raise ValueError(
                f"num_train_epochs={self.num_train_epochs:g} does nothing beside max_steps={self.max_steps}: set "
                "max_steps to -1 to count epochs."
            )

    def _require_numbers(self) -> None:
        if self.max_steps < 1 and self.max_steps != -1:
            raise ValueError(f"max_steps={self.max_steps} must be 1 or more, or -1 to count num_train_epochs instead.")
        for name, least in (
            ("max_tokens", 1),
            ("tokens_per_update", 1),
            ("gradient_accumulation_steps", 1),
            ("eval_beams", 1),
            ("average_checkpoints", 0),
            ("early_stopping", 1),
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(f"{name}={value!r} must be a whole number of {least} or more.")
        if self.max_tokens > LARGEST_BATCH:
            raise ValueError(f"max_tokens={self.max_tokens} must be at most {LARGEST_BATCH:,}; 25,000 is the paper's.")

    def share_update(self, tokens: int) -> None:
        """Sets `tokens_per_update` and, from it and the number of processes, the batches of each process."""
        processes = self.world_size
        accumulation = batches_of_each_process(tokens, self.max_tokens, processes)
        if self.gradient_accumulation_steps not in (1, accumulation):
            raise ValueError(
                f"gradient_accumulation_steps={self.gradient_accumulation_steps}, but tokens_per_update={tokens} "
                f"takes {accumulation}, with {processes} process(es) and max_tokens={self.max_tokens}: leave "
                "one of them out."
            )
        self.tokens_per_update, self.gradient_accumulation_steps = tokens, accumulation

    @property
    def augmentation_rates(self) -> dict[str, float]:
        """The rates in `augmentation`."""
        assert not isinstance(self.augmentation, str)  # it was parsed
        return self.augmentation or {}

    @property
    def batches_per_update(self) -> int:
        """The batches of an update, in all processes. Which pairs they hold does not depend on the processes."""
        return self.world_size * self.gradient_accumulation_steps

    @property
    def update_limit(self) -> int:
        """`tokens_per_update`, or what follows from `gradient_accumulation_steps` and the number of processes."""
        return self.max_tokens * self.batches_per_update

    def papers_rate(self, d_model: int) -> float:
        """Returns the peak rate of section 5.3 for a model width, times `rate_factor`."""
        return self.rate_factor * peak_rate(d_model, self.get_warmup_steps(self.max_steps))

    def rate_for(self, config: PreTrainedConfig) -> float:
        """Returns the peak learning rate for a model: the given one, or the paper's for the model's width."""
        if self.learning_rate is not None:
            return self.learning_rate
        width = getattr(config, "hidden_size", None)
        if width is None:
            raise ValueError(
                f"The config of {config.model_type} has no hidden_size, on which the paper's rate depends: set "
                "learning_rate."
            )
        return self.papers_rate(width)


def batches_of_each_process(tokens_per_update: int, max_tokens: int, processes: int) -> int:
    """Returns how many batches of an update each process has; raises a ValueError where they can't be shared."""
    at_once = max_tokens * processes
    batches, rest = divmod(tokens_per_update, at_once)
    if batches and not rest:
        return batches
    sizes = range(min(max_tokens, tokens_per_update // processes), 0, -1)
    fitting = next((size for size in sizes if tokens_per_update % (size * processes) == 0), None)
    remedy = f"max_tokens to {fitting}, or " if fitting else ""
    raise ValueError(
        f"An update of tokens_per_update={tokens_per_update} can't be shared by {processes} process(es) in batches of "
        f"max_tokens={max_tokens}: set {remedy}tokens_per_update to a multiple of {at_once}."
    )


@dataclass
class DescribedTrainingArguments(TranslationTrainingArguments):
    """The arguments of a run that other machines will make: this one needs no GPU for them."""

    def __post_init__(self) -> None:
        self.planned_precision = "bfloat16" if self.bf16 else "float16" if self.fp16 else "float32"
        if self.bf16 in (True, "auto"):
            self.bf16 = False
        self.fp16 = False
        self.tf32, self.use_cpu = None, True
        super().__post_init__()


# How launchers tell a process that it is one of several: torchrun and MPI's, as Accelerate reads them.
WORLD_SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
# Packages of the library's loggers, where they have another name.
LOGGER_PACKAGES = {"azure_ml": "azureml", "comet_ml": "comet_ml", "flyte": "flytekit", "kubeflow": "kubeflow.trainer"}


def _mapping(name: str, value: Any) -> dict[str, Any] | None:
    """Returns names and values, which are JSON on the command line; `None` for null."""
    try:
        content = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError as error:
        raise ValueError(f"{name}={value!r} is not valid JSON ({error}): write names and values.") from error
    if not isinstance(content, dict | None):
        raise ValueError(f'{name}={value!r} has no names: write {{"name": value}}, or null.')
    return content


def _require_launched_processes() -> None:
    """Refuses a process that would wait for others that never come. `accelerate launch --cpu --num_processes 2` starts
    one process, with the address of several."""
    is_launched = os.environ.get("ACCELERATE_USE_CPU") == "True" and "MASTER_ADDR" in os.environ
    if is_launched and not any(name in os.environ for name in WORLD_SIZES):
        raise ValueError(
            "accelerate launch starts only one process on a CPU: start several with ACCELERATE_USE_CPU=true torchrun "
            "--standalone --nproc_per_node 2, or leave out --num_processes."
        )
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank and size and not 0 <= int(rank) < int(size):
        raise ValueError(
            f"RANK={rank} and WORLD_SIZE={size} in the environment do not fit: ranks count from 0. Start the "
            "processes with torchrun, or unset both."
        )


def _require_loggers(names: list[str]) -> None:
    """Refuses a logger that is unknown or not installed. The library would report it after all the preparations."""
    if "none" in names and len(names) > 1:
        raise ValueError(f"report_to={' '.join(names)}: none turns all loggers off, so it stands alone.")
    for name in names:
        if name in ("none", "all"):
            continue
        if name not in INTEGRATION_TO_CALLBACK:
            hint = suggestion(name, INTEGRATION_TO_CALLBACK)
            raise ValueError(f"report_to={name!r} is no logger that transformers knows{hint}; none turns it off.")
        package = LOGGER_PACKAGES.get(name, name)
        if find_spec(package.split(".")[0]) is None:
            raise ValueError(
                f"report_to={name!r} needs the package {package}: pip install {package}, or leave it out."
            )
