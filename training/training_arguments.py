"""The keys of a recipe that say how to train: the library's, with the paper's values, and a few of our own."""

from dataclasses import dataclass
from importlib.util import find_spec

from transformers import Seq2SeqTrainingArguments
from transformers.trainer_utils import SchedulerType

from vanilla_transformer.loss import Smoothing
from vanilla_transformer.training.arguments import key
from vanilla_transformer.training.schedule import peak_rate


@dataclass
class TranslationTrainingArguments(Seq2SeqTrainingArguments):
    """The library's training arguments with the paper's values as defaults (sections 5.1 to 5.4), and a few more."""

    max_steps: int = key(100_000, "Updates to train for; -1 to count num_train_epochs instead.")
    warmup_steps: float = key(4000, "Updates over which the learning rate rises.")
    lr_scheduler_type: SchedulerType | str = key("inverse_sqrt", "How the learning rate goes on after the warm-up.")
    adam_beta2: float = key(0.98, "Adam's second beta.")
    adam_epsilon: float = key(1e-9, "Adam's epsilon.")
    max_grad_norm: float = key(0.0, "Largest norm of a gradient; 0, as in the paper, for no limit.")
    logging_steps: float = key(50, "Log every so many updates.")
    logging_nan_inf_filter: bool = key(False, "Whether to hide a loss that is not a number; here it ends the run.")
    report_to: None | str | list[str] = key("tensorboard", "Where to log besides metrics.jsonl; none: nowhere.")  # noqa: RUF036
    restore_callback_states_from_checkpoint: bool = key(
        True, "Whether a resumed run remembers early stopping's count."
    )
    ddp_find_unused_parameters: bool | None = key(False, "Whether DDP looks for parameters without a gradient.")

    max_tokens: int = key(25_000, "Most source and most target tokens in a batch of one process, padding included.")
    learning_rate: float | None = key(
        None, "The peak rate; by default the paper's, (d_model * warmup_steps)^-0.5, times rate_factor."
    )
    rate_factor: float = key(1.0, "Multiplies the paper's rate, where learning_rate is not given.")
    smoothing: Smoothing = key(
        "others", "Who shares the smoothed probability: others (the authors'), all, no_padding."
    )
    bpe_dropout: float = key(0.0, "Share of merges to skip when training text is cut (BPE only); 0.1 is usual.")
    prefix_replace: float = key(0.0, "Share of the decoder's input tokens to replace by random ones.")
    prefix_drop: float = key(0.0, "Share of the decoder's input tokens to replace by <unk>.")
    eval_bleu: bool = key(True, "Whether evaluation translates the validation set by beam search for its BLEU.")
    eval_beams: int | None = key(None, "Beam of that search on the way, where not the model's own (num_beams).")
    early_stopping: int | None = key(None, "Stop after so many evaluations without a better BLEU.")
    average_checkpoints: int = key(5, "The final model is the mean of the last so many checkpoints; 0: the last.")
    ema_decay: float = key(
        0.0, "Make the final model a moving average of this decay, in place of a mean; 0.999 is usual."
    )

    def __post_init__(self):
        if self.report_to in ("tensorboard", ["tensorboard"]) and find_spec("tensorboard") is None:
            self.report_to = "none"
        super().__post_init__()
        if self.early_stopping and (self.eval_strategy == "no" or not self.eval_bleu):
            raise ValueError("early_stopping needs evaluations: set eval_strategy to steps, eval_steps and eval_bleu.")
        if self.learning_rate is None and self.lr_scheduler_type != SchedulerType.INVERSE_SQRT:
            raise ValueError(
                f"lr_scheduler_type={self.lr_scheduler_type.value} needs a learning_rate: the paper's rate is for its "
                "own schedule, inverse_sqrt."
            )
        if self.learning_rate is not None and self.rate_factor != 1.0:
            raise ValueError("learning_rate and rate_factor are both given: rate_factor multiplies the paper's rate.")
        for name, default, instead in [
            ("label_smoothing_factor", 0.0, 'model_config: {"label_smoothing": ...}'),
            ("per_device_train_batch_size", 8, "max_tokens"),
            ("predict_with_generate", False, "eval_bleu"),
            ("generation_num_beams", None, "num_beams"),
            ("generation_config", None, "num_beams and length_penalty"),
            ("generation_max_length", None, "nothing, translations have up to 50 tokens more than their source"),
        ]:
            if getattr(self, name) != default:
                raise ValueError(f"{name} is for the stock trainer: here set {instead}.")
        if self.max_steps > 0 and self.num_train_epochs != 3:  # the library's default
            raise ValueError(
                f"num_train_epochs={self.num_train_epochs:g} does nothing beside max_steps={self.max_steps}: set "
                "max_steps to -1 to count epochs."
            )
        for name, least in (("max_tokens", 1), ("eval_beams", 1), ("average_checkpoints", 0), ("early_stopping", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(f"{name}={value!r} must be a whole number of {least} or more.")
        # Token batches have different widths, which one process can't join to deal them out to the others.
        self.accelerator_config.dispatch_batches = False
        # The progress bar shows the speed in tokens. (As a default, this word can't pass the library's parser.)
        self.include_num_input_tokens_seen = "non_padding"

    def papers_rate(self, d_model: int) -> float:
        """The peak rate of section 5.3, multiplied."""
        return self.rate_factor * peak_rate(d_model, self.get_warmup_steps(self.max_steps))
