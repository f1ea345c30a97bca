"""`TranslationTrainer`: the library's `Seq2SeqTrainer` with token batches, the paper's schedule, and BLEU."""

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from accelerate.data_loader import prepare_data_loader
from accelerate.utils import DDPCommunicationHookType
from datasets import Dataset, IterableDataset
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProgressCallback,
    Seq2SeqTrainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import SchedulerType, TrainOutput

from vanilla_transformer.hub.adapters import has_adapter
from vanilla_transformer.hub.languages import languages_of
from vanilla_transformer.hub.loading import read_object
from vanilla_transformer.models.searches import has_own_search, store_options
from vanilla_transformer.models.tokenization_vanilla_transformer import save_tokenizers
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.build_model import require_vocabulary
from vanilla_transformer.training.callbacks import MetricsFile, SetEpoch, StopAtNan, StopGently, TokensPerSecond
from vanilla_transformer.training.data.bpe_dropout import BpeDropout
from vanilla_transformer.training.data.collators import RetokenizingCollator, TokenColumns, WithoutFullMask
from vanilla_transformer.training.data.decoder_input_noise import NoisyPrefixCollator, PrefixNoise
from vanilla_transformer.training.data.token_batches import (
    StreamedTokenBatches,
    TokenBatchSampler,
    column_lengths,
    describe_update,
)
from vanilla_transformer.training.data.tokenized_pairs import encoder
from vanilla_transformer.training.evaluation.evaluator import Evaluator
from vanilla_transformer.training.learning_rate import inverse_sqrt_schedule
from vanilla_transformer.training.objectives.cross_entropy import make_objective
from vanilla_transformer.training.run_folder.checkpoints import (
    NEWEST,
    checkpoint_of_step,
    delete_older,
    mark_complete,
    newest_checkpoint,
    not_a_number,
    not_written,
    remove_marks,
    require_last,
    require_readable,
    require_same_architecture,
)
from vanilla_transformer.training.run_folder.weight_ema import ExponentialMovingAverage


class TranslationTrainer(Seq2SeqTrainer):
    """Trains any encoder-decoder of transformers with token batches, the paper's schedule and a training objective.

    The data sets have the columns `input_ids` and `labels`. `eval_dataset` needs the text columns `source` and
    `target` for BLEU, `train_dataset` needs them for BPE-dropout.

    It takes the arguments of `Seq2SeqTrainer`, without those that would have no effect.

    Args:
        model: The model.
        args: The arguments; `args.objective` names what is minimised (see `objectives/cross_entropy.py`).
        processing_class: The joint or source tokenizer.
        target_tokenizer: The target tokenizer, for separate vocabularies.
        train_dataset: Tokenised pairs to train on.
        eval_dataset: Tokenised pairs to validate on, or several sets by name.
        data_collator: Makes a batch of pairs; by default `DataCollatorForSeq2Seq`.
        model_init: Makes a new model for each call of `train`, instead of `model`. `hyperparameter_search` needs it.
        compute_metrics: Computes further metrics from the token ids of translations and references.
        callbacks: Additional callbacks.
        optimizers: An optimizer and a schedule, instead of the paper's.
    """

    args: TranslationTrainingArguments
    lr_scheduler: Any
    control: TrainerControl
    sampler: TokenBatchSampler | StreamedTokenBatches
    noisy_collator: RetokenizingCollator | NoisyPrefixCollator

    def __init__(
        self,
        model: PreTrainedModel | None = None,
        args: TranslationTrainingArguments | None = None,
        data_collator: Callable[[list[dict[str, Any]]], Any] | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        model_init: Callable[..., PreTrainedModel] | None = None,
        compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
        callbacks: Sequence[TrainerCallback] | None = None,
        optimizers: tuple[torch.optim.Optimizer | None, Any] = (None, None),
        *,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
    ):
        if args is None or processing_class is None:
            raise ValueError("TranslationTrainer needs args and processing_class, the tokenizer: give both.")
        self.target_tokenizer = target_tokenizer or processing_class
        self.stop_gently = StopGently()
        self.ema = ExponentialMovingAverage(args.ema_decay) if args.ema_decay else None
        own_callbacks = [SetEpoch(self), StopAtNan(), self.stop_gently, MetricsFile(args.output_dir)]
        self._papers_rate: float | None = None
        self._papers_schedule = optimizers[1] is None
        self._pairs_trained = 0
        self._new_tokens: torch.Tensor | int = 0  # source tokens since the last log line
        # The library turns the cache off for training and would save that: a saved model must decode with it.
        self._use_cache = getattr(getattr(model, "config", None), "use_cache", True)
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator or DataCollatorForSeq2Seq(processing_class, model=model),
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            model_init=model_init,
            compute_metrics=compute_metrics,
            callbacks=[*own_callbacks, *(callbacks or ())],
            optimizers=optimizers,
        )
        # `compute_loss` divides by `num_items_in_batch`, whether the model's own loss does or not.
        self.model_accepts_loss_kwargs = True
        self._follow_model()
        if args.device.type == "cpu":
            with suppress(ModuleNotFoundError):  # all that is lost is speed
                import_module("vanilla_transformer.cpu.malloc").keep_freed_memory()
        self._add_optional_callbacks()

    def _follow_model(self) -> None:
        """Sets what depends on the model and the arguments, which may both change before a training: the objective,
        the decoder's inputs, and the paper's learning rate if none is given."""
        model, args = self.model, self.args
        require_vocabulary(model, self.processing_class, self.target_tokenizer)
        if has_own_search(model):
            store_options(model)  # so that `generate` of what is saved gives the translations of the evaluation
        self.training_objective = make_objective(args, model.config, self.target_tokenizer.pad_token_id)
        if isinstance(self.data_collator, DataCollatorForSeq2Seq):
            self.data_collator.model = model
        tokenizers = (self.processing_class, self.target_tokenizer)
        self.evaluator = Evaluator(args, self.accelerator, *tokenizers, self.data_collator)
        if args.learning_rate is None or args.learning_rate == self._papers_rate:
            args.learning_rate = None
            args.learning_rate = self._papers_rate = args.rate_for(model.config)

    def _add_optional_callbacks(self) -> None:
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(TokensPerSecond())
        if self.ema is not None:
            if self.is_fsdp_enabled:
                raise ValueError("ema_decay does not work with FSDP: set it to 0 and use average_checkpoints instead.")
            self.add_callback(self.ema)
        if self.is_fsdp_enabled and self.model is not None and has_adapter(self.model):
            raise ValueError("A LoRA adapter is not gathered under FSDP: use DDP, or leave out lora_rank.")
        if self.args.early_stopping:
            self.args.metric_for_best_model, self.args.greater_is_better = "bleu", True
            self.add_callback(EarlyStoppingCallback(self.args.early_stopping))

    # --- token batches ---

    def get_train_dataloader(self) -> DataLoader:
        dataset, args = self.train_dataset, self.args
        options = {"max_tokens": args.max_tokens, "seed": args.seed if args.data_seed is None else args.data_seed}
        # An update is a list of batches that the processes share, and an epoch is a whole number of updates.
        batches = args.batches_per_update
        if isinstance(dataset, IterableDataset):
            encode = encoder(self.processing_class, self.target_tokenizer, languages_of(self.model.config).target)
            own = range(args.process_index, batches, args.world_size)
            self.sampler = StreamedTokenBatches(dataset, encode, parts=batches, own=own, **options)
            if self.is_world_process_zero():
                print(f"{args.world_size} process(es)")
            return prepare_data_loader(
                self.sampler.dataloader(self.training_collator(), **args.loader_options),
                device=args.device,
                num_processes=1,  # this process has its share already
                put_on_device=True,
                non_blocking=self.accelerator.non_blocking,
            )
        source, target = column_lengths(dataset, "input_ids"), column_lengths(dataset, "labels")
        self.sampler = TokenBatchSampler(source, target, batches_multiple_of=batches, **options)
        if self.is_world_process_zero():
            print(describe_update(self.sampler, args))
        loading = {"batch_sampler": self.sampler, "collate_fn": self.training_collator(), **args.loader_options}
        return self.accelerator.prepare(DataLoader(dataset, **loading))

    def training_collator(self) -> Callable[[list[dict[str, Any]]], Any]:
        """Returns the collator for training: padding, and whatever noise is set."""
        args, tokenizer = self.args, self.processing_class
        collator: Any = TokenColumns(self.data_collator)
        if args.bpe_dropout:
            sides = (tokenizer, self.target_tokenizer)
            dropouts = [BpeDropout(side, args.bpe_dropout, seed=args.seed) for side in sides]
            collator = self.noisy_collator = RetokenizingCollator(self.data_collator, *dropouts, seed=args.seed)
        if args.prefix_replace or args.prefix_drop:
            start = self.model.config.decoder_start_token_id
            noise = PrefixNoise.for_tokenizer(
                self.target_tokenizer, start, replace=args.prefix_replace, drop=args.prefix_drop
            )
            collator = self.noisy_collator = NoisyPrefixCollator(collator, noise, seed=args.seed)
        return WithoutFullMask(collator)

    # --- the objective ---

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        """Computes the objective; for prediction, which needs outputs, the loss is the model's own."""
        if return_outputs:
            return super().compute_loss(model, inputs, return_outputs=True)
        loss = self.training_objective(model, dict(inputs), num_items_in_batch)
        if num_items_in_batch is None or not self.args.average_tokens_across_devices:
            return loss
        # The losses of the processes (or of DataParallel's GPUs) must be added, but their gradients are averaged.
        return loss * (self.args.n_gpu if self.args.n_gpu > 1 else self.accelerator.num_processes)

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        if self.args.bf16_gradients:
            self.accelerator.ddp_handler.comm_hook = DDPCommunicationHookType.BF16
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        if plugin is not None and isinstance(plugin.mixed_precision_policy, MixedPrecisionPolicy):
            plugin.mixed_precision_policy = summing_in_float32(plugin.mixed_precision_policy)

    # --- counts of tokens and pairs ---

    def _track_num_input_tokens(self, inputs: dict[str, Any]) -> None:
        """Counts the source tokens on the device. The library would gather and read the number for every batch."""
        mask = inputs.get("attention_mask")
        if mask is None:
            mask = inputs["input_ids"] != self.processing_class.pad_token_id
        self._new_tokens = self._new_tokens + mask.sum()
        self._pairs_trained += len(inputs["labels"])

    def _add_tokens_seen(self) -> None:
        new = torch.as_tensor(self._new_tokens, device=self.args.device)
        self.state.num_input_tokens_seen += int(self.accelerator.reduce(new))
        self._new_tokens = 0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if start_time is not None:  # a line of the training
            self._add_tokens_seen()
        if "train_samples_per_second" in logs:  # the library takes each batch for one of a fixed number of pairs
            pairs = self.accelerator.reduce(torch.tensor(self._pairs_trained, device=self.args.device))
            logs["train_samples_per_second"] = round(int(pairs) / logs["train_runtime"], 3)
        super().log(logs, start_time)

    # --- the paper's schedule ---

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        self._follow_model()
        return super().create_optimizer(model)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        if self._papers_schedule and self.args.lr_scheduler_type == SchedulerType.INVERSE_SQRT:
            warmup = self.args.get_warmup_steps(num_training_steps)
            self.lr_scheduler = inverse_sqrt_schedule(optimizer or self.optimizer, warmup)
        return super().create_scheduler(num_training_steps, optimizer)

    # --- evaluation ---

    def evaluate(
        self,
        eval_dataset: Dataset | dict[str, Dataset] | str | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
        **kwargs: Any,
    ) -> dict[str, float]:
        """Measures loss per token, perplexity and BLEU. None depends on batches or on the number of processes."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dataset, str):
            dataset = self.eval_dataset[dataset]
        if isinstance(dataset, dict):
            metrics: dict[str, float] = {}
            for name, part in dataset.items():
                metrics |= self.evaluate(part, ignore_keys, f"{metric_key_prefix}_{name}", **kwargs)
            return metrics
        if dataset is None:
            raise ValueError("There is nothing to evaluate on: give eval_dataset.")
        start = time.perf_counter()
        model = self.whole_model()
        training = model.training
        with_bleu = self.args.eval_bleu and {"source", "target"} <= set(dataset.column_names)
        names = ("sacrebleu",) if with_bleu else ()
        measured, translations = self.evaluator.measure(model, dataset, names, num_beams=self.args.eval_beams)
        if with_bleu:
            measured["bleu"] = measured.pop("sacrebleu")["score"]  # only numbers can be logged
            for direction, figures in measured.pop("directions", {}).items():
                measured[f"bleu_{direction}"] = figures["sacrebleu"]["score"]
        if self.compute_metrics is not None and with_bleu:
            measured |= self.compute_metrics(self.evaluator.prediction(translations, dataset))
        model.train(training)

        metrics = {f"{metric_key_prefix}_{name}": value for name, value in measured.items()}
        metrics[f"{metric_key_prefix}_seconds"] = round(time.perf_counter() - start, 1)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def hyperparameter_search(
        self,
        hp_space: Callable[..., Any] | None = None,
        compute_objective: Callable[[dict[str, float]], float] | None = None,
        n_trials: int = 20,
        direction: str | list[str] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """The library's search, by default for the highest BLEU, or the lowest loss if `eval_bleu` is off."""
        metric, best = ("eval_bleu", "maximize") if self.args.eval_bleu else ("eval_loss", "minimize")
        if compute_objective is None:
            compute_objective, direction = (lambda metrics: metrics[metric]), direction or best
        return super().hyperparameter_search(
            hp_space, compute_objective, n_trials, direction or "minimize", *args, **kwargs
        )

    def whole_model(self) -> PreTrainedModel:
        """Returns the model with all its weights in this process.

        Collective: every process must call this. It is the model in training or, under FSDP, a copy of it.
        """
        model = self.accelerator.unwrap_model(self.model)
        if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
            return model
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        with torch.random.fork_rng():  # the random weights of the copy are replaced and must not change training
            whole = type(model)(model.config).to(self.args.device)
        whole.generation_config = copy.deepcopy(model.generation_config)
        whole.load_state_dict(state)
        return whole.train(model.training)

    # --- checkpoints ---

    @property
    def stopped_by_hand(self) -> bool:
        """Whether Ctrl-C or SIGTERM ended the training."""
        return self.stop_gently.requested

    def save_final(self, model: PreTrainedModel, folder: Path) -> None:
        """Saves the model with its tokenizers for `from_pretrained`, without anything that only training needs."""
        model.config.use_cache = self._use_cache
        model.save_pretrained(folder)
        save_tokenizers(folder, self.processing_class, self.target_tokenizer)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        """Saves a checkpoint and marks it as complete when every process has written its part.

        Older checkpoints are deleted only after that. The library would delete them before, and knows no marks.
        """
        if not torch.isfinite(self._tr_loss):  # the sum of the losses since the last log line
            raise not_a_number(self.args.output_dir, self.state.global_step)
        self._add_tokens_seen()
        run = self._get_output_dir(trial)  # that of one trial, in a hyperparameter search
        folder = checkpoint_of_step(run, self.state.global_step)
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        if self.args.should_save:
            remove_marks(folder)
        try:
            super()._save_checkpoint(model, trial)
            if self.ema is not None and self.args.should_save:
                self.ema.save(folder)
        except Exception as error:  # torch, safetensors and tokenizers each have their own for a full disk
            raise not_written(folder, error) from error
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            mark_complete(folder, scheduled=not self.stop_gently.saves_extra)
            delete_older(folder, limit, self.state.best_model_checkpoint)
        self.stop_gently.saves_extra = False
        self.accelerator.wait_for_everyone()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        config = self.model.config
        use_cache_in_training = getattr(config, "use_cache", True)
        config.use_cache = self._use_cache
        try:
            super().save_model(output_dir, _internal_call)
        finally:
            config.use_cache = use_cache_in_training
        if self.args.should_save and self.target_tokenizer is not self.processing_class:
            save_tokenizers(output_dir or self.args.output_dir, self.processing_class, self.target_tokenizer)

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput | None:
        """Trains.

        Args:
            resume_from_checkpoint: A checkpoint to resume from; `True` or `"last"` for the newest complete one.
            kwargs: Other arguments of the library's `train`.

        Returns:
            The library's result, or `None` if the checkpoint already has `max_steps` updates.
        """
        self._pairs_trained = self._new_tokens = 0
        checkpoint = str(resume_from_checkpoint) if resume_from_checkpoint else None
        if checkpoint in NEWEST:
            checkpoint = str(newest_checkpoint(self.args.output_dir))
        if checkpoint and self._is_finished(Path(checkpoint)):
            return None
        return super().train(resume_from_checkpoint=checkpoint, **kwargs)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Warns of missing weights, except tied ones: a checkpoint has them under another name."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        missing = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _is_finished(self, checkpoint: Path) -> bool:
        """Checks a checkpoint and returns whether no update is left to do; then it loads its weights."""
        require_same_architecture(self.model, checkpoint)
        require_readable(checkpoint)
        require_last(checkpoint, self.args.output_dir)
        if self.ema is not None:
            self.ema.load(checkpoint, self.args.device)
        read_object(checkpoint / TRAINER_STATE_NAME)  # the library has no sentence for a damaged one
        state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE_NAME))
        if not 0 < self.args.max_steps <= state.global_step:
            return False
        # The library would make one more update.
        self._load_from_checkpoint(str(checkpoint))
        self.state = state
        return True


def summing_in_float32(policy: MixedPrecisionPolicy) -> MixedPrecisionPolicy:
    """FSDP 2's policy with gradients summed over processes in float32, and a loss that stays in float32. Accelerate's
    converts both to bfloat16: three digits of a loss, and sums that lose small gradients."""
    return replace(policy, reduce_dtype=torch.float32, output_dtype=None)
