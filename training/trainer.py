"""`TranslationTrainer`: the library's `Seq2SeqTrainer` with token batches, the paper's schedule, and BLEU."""

import copy
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
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
from transformers.trainer_utils import IntervalStrategy, SchedulerType, TrainOutput
from transformers.utils import logging

from vanilla_transformer import Translator
from vanilla_transformer.hub.adapters import has_adapter
from vanilla_transformer.hub.languages import languages_of
from vanilla_transformer.hub.loading import read_object
from vanilla_transformer.models.label_smoothing import IGNORED_LABEL
from vanilla_transformer.models.search_options import has_own_search, store_options
from vanilla_transformer.models.tokenization_vanilla_transformer import (
    TARGET,
    save_tokenizers,
)
from vanilla_transformer.safe_files.atomic_writes import write_lines
from vanilla_transformer.safe_files.standard_streams import on_terminal
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.callbacks import (
    MetricsFile,
    SetEpoch,
    StopAtNan,
    StopGently,
    TokensPerSecond,
    not_a_number,
)
from vanilla_transformer.training.data.bpe_dropout import BpeDropout
from vanilla_transformer.training.data.collators import RetokenizingCollator, TokenColumns, WithoutFullMask
from vanilla_transformer.training.data.decoder_input_noise import NoisyPrefixCollator, PrefixNoise
from vanilla_transformer.training.data.token_batches import StreamedTokenBatches, TokenBatchSampler, column_lengths
from vanilla_transformer.training.data.tokenized_pairs import encoder
from vanilla_transformer.training.evaluation.metrics import Reference
from vanilla_transformer.training.evaluation.test_sets import (
    batches_by_length,
    perplexity,
    rows_by_direction,
    score_dataset,
    sum_of_losses,
    translate_texts,
)
from vanilla_transformer.training.learning_rate import inverse_sqrt_schedule
from vanilla_transformer.training.objectives.cross_entropy import make_objective
from vanilla_transformer.training.run_folder.checkpoints import (
    NEWEST,
    checkpoint_of_step,
    delete_older,
    last_good_checkpoint,
    mark_complete,
    naming_damage,
    newest_checkpoint,
    remove_marks,
    require_last,
)
from vanilla_transformer.training.run_folder.weight_ema import ExponentialMovingAverage


logger = logging.get_logger(__name__)


class TranslationTrainer(Seq2SeqTrainer):
    """Trains any encoder-decoder of transformers with token batches, the paper's schedule and a training objective.

    The data sets have the columns `input_ids` and `labels`. `eval_dataset` needs the text columns `source` and
    `target` for BLEU, `train_dataset` needs them for BPE-dropout.

    It takes the arguments of `Seq2SeqTrainer`, and refuses those that would have no effect.

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
        refused: Arguments of `Seq2SeqTrainer` that have no effect here.
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
        **refused: Any,
    ):
        _refuse_without_effect(refused)
        if args is None or processing_class is None:
            raise ValueError("TranslationTrainer needs args and processing_class, the tokenizer: give both.")
        self.target_tokenizer = target_tokenizer or processing_class
        self.stop_gently = StopGently()
        self.ema = ExponentialMovingAverage(args.ema_decay) if args.ema_decay else None
        own_callbacks = [SetEpoch(self), StopAtNan(), self.stop_gently, MetricsFile(args.output_dir)]
        self._papers_rate: float | None = None
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
        # For the library, what is trained is the objective, and that divides by `num_items_in_batch` for every model.
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
        _require_vocabulary(model, self.processing_class, self.target_tokenizer)
        if has_own_search(model):
            store_options(model)  # so that `generate` of what is saved gives the translations of the evaluation
        self.training_objective = make_objective(args, model.config, self.target_tokenizer.pad_token_id)
        if isinstance(self.data_collator, DataCollatorForSeq2Seq):
            self.data_collator.model = model
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
        options = {
            "max_tokens": args.max_tokens,
            "seed": args.data_seed if args.data_seed is not None else args.seed,
        }
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
        loader = DataLoader(
            dataset,
            batch_sampler=self.sampler,
            collate_fn=self.training_collator(),
            **args.loader_options,
        )
        return self.accelerator.prepare(loader)

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
        """Computes the objective. The library scales it for several processes and for gradient accumulation."""
        if return_outputs:  # the library asks for outputs in prediction only; there, the loss is the model's own
            return super().compute_loss(model, inputs, return_outputs=True)

        # The library calls this in the model's place.
        def forward(num_items_in_batch: torch.Tensor | int | None = None, **inputs: Any) -> dict[str, torch.Tensor]:
            return {"loss": self.training_objective(model, inputs, num_items_in_batch)}

        return super().compute_loss(forward, inputs, num_items_in_batch=num_items_in_batch)

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        self._pairs_trained += len(inputs["labels"])
        return super().training_step(model, inputs, *args, **kwargs)

    # --- nothing that makes the host wait for the device at every update ---

    def _track_num_input_tokens(self, inputs: dict[str, Any]) -> None:
        """Counts the source tokens on the device. The library would gather and read the number for every batch."""
        mask = inputs.get("attention_mask")
        if mask is None:
            mask = inputs["input_ids"] != self.processing_class.pad_token_id
        self._new_tokens = self._new_tokens + mask.sum()

    def _get_grad_norm(
        self, model: torch.nn.Module, grad_norm: torch.Tensor | float | None = None
    ) -> torch.Tensor | float | None:
        """The norm of the gradients, if they are clipped or it is logged. The library would compute it at every
        update, and then multiply all gradients by 1."""
        return super()._get_grad_norm(model, grad_norm) if grad_norm is not None or self._logs_next() else None

    def _logs_next(self) -> bool:
        """Whether the update that is being made will be logged."""
        step, args = self.state.global_step + 1, self.args
        if args.logging_strategy != IntervalStrategy.STEPS:
            return True  # perhaps
        return step % self.state.logging_steps == 0 or (step == 1 and args.logging_first_step)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        if self.control.should_log or self.control.should_save:
            new = torch.as_tensor(self._new_tokens, device=self.args.device)
            self.state.num_input_tokens_seen += int(self.accelerator.reduce(new))
            self._new_tokens = 0
        super()._maybe_log_save_evaluate(*args, **kwargs)

    def _build_accelerator_args(self, **kwargs: Any) -> dict[str, Any]:
        arguments = super()._build_accelerator_args(**kwargs)
        if self.args.bf16_gradients:
            (ddp,) = arguments["kwargs_handlers"]
            ddp.comm_hook = DDPCommunicationHookType.BF16
        return arguments

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        if plugin is not None and isinstance(plugin.mixed_precision_policy, MixedPrecisionPolicy):
            plugin.mixed_precision_policy = summing_in_float32(plugin.mixed_precision_policy)

    def _finalize_training(self, trial: Any, num_train_samples: float, start_time: float) -> TrainOutput:
        """Reports the speed in pairs. The library would count `per_device_train_batch_size` pairs for each batch."""
        pairs = torch.tensor(float(self._pairs_trained), device=self.args.device)
        steps = max(self.state.global_step - self._initial_global_step, 1)
        per_step = self.accelerator.reduce(pairs).item() / steps
        return super()._finalize_training(trial, per_step * self.state.max_steps, start_time)

    # --- the paper's schedule ---

    def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
        self._follow_model()
        return super().create_optimizer(model)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        if self.lr_scheduler is None and self.args.lr_scheduler_type == SchedulerType.INVERSE_SQRT:
            warmup = self.args.get_warmup_steps(num_training_steps)
            self.lr_scheduler = inverse_sqrt_schedule(optimizer or self.optimizer, warmup)
            self._created_lr_scheduler = True
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
        measured, translations = self._measure(model, dataset, names, num_beams=self.args.eval_beams)
        if with_bleu:
            measured["bleu"] = measured.pop("sacrebleu")["score"]  # only numbers can be logged
            for direction, figures in measured.pop("directions", {}).items():
                measured[f"bleu_{direction}"] = figures["sacrebleu"]["score"]
        if self.compute_metrics is not None and with_bleu:
            measured |= self.compute_metrics(self._as_prediction(translations, dataset))
        model.train(training)

        metrics = {f"{metric_key_prefix}_{name}": value for name, value in measured.items()}
        metrics[f"{metric_key_prefix}_seconds"] = round(time.perf_counter() - start, 1)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _as_prediction(self, translations: Sequence[str], dataset: Dataset) -> EvalPrediction:
        """The token ids of translations and references, as the library gives them to `compute_metrics`."""
        ids = self.target_tokenizer(text_target=list(translations))["input_ids"]
        return EvalPrediction(predictions=_as_array(ids), label_ids=_as_array(dataset["labels"][:]))

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

    def score(
        self,
        model: PreTrainedModel,
        dataset: Dataset,
        hypotheses: Path,
        references: Sequence[Reference] | None = None,
    ) -> dict[str, Any]:
        """Returns loss, perplexity and sacreBLEU with the model's decoding options, and writes the translations.

        Args:
            model: The model.
            dataset: Tokenised pairs with their text.
            hypotheses: The file for the translations, one on each line. Each of several directions has its own, with
                its name in front of the last two suffixes: `test.en-de.hypotheses.txt`.
            references: The references; the target side by default.
        """
        names = dict.fromkeys(("sacrebleu", *self.args.test_measures))
        measured, translations = self._measure(model, dataset, tuple(names), references)
        if self.args.should_save:
            lines = [" ".join(line.split()) for line in translations]
            stem, rest = hypotheses.name.split(".", 1)
            by_direction = rows_by_direction(dataset)
            for direction, rows in by_direction.items():
                write_lines(hypotheses.with_name(f"{stem}.{direction}.{rest}"), [lines[row] for row in rows])
            if not by_direction:
                write_lines(hypotheses, lines)
        return measured

    def bleu(self, model: PreTrainedModel, dataset: Dataset) -> float:
        """Returns the sacreBLEU of pairs with their text, with the model's decoding options: the mean of several
        directions. Collective."""
        translations = self.translate(model.eval(), dataset["source"][:])
        figures = score_dataset(translations, dataset["target"][:], dataset, languages_of(model.config).target)
        return figures["sacrebleu"]["score"]

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

    def _measure(
        self,
        model: PreTrainedModel,
        dataset: Dataset,
        measures: Sequence[str] = (),
        references: Sequence[Reference] | None = None,
        **decoding: Any,
    ) -> tuple[dict[str, Any], list[str]]:
        """Returns the loss, the given measures of translations, and these, if there are measures. Collective."""
        model.eval()
        total, tokens = self.accelerator.reduce(self._sum_of_losses(model, dataset)).tolist()
        loss = total / tokens
        if not math.isfinite(loss):
            raise not_a_number(self.state.global_step, self.args.output_dir)
        measured: dict[str, Any] = {"loss": loss, "perplexity": perplexity(loss)}
        if not measures:
            return measured, []
        translations = self.translate(model, dataset["source"][:], **decoding)
        references = dataset["target"][:] if references is None else references
        figures = score_dataset(translations, references, dataset, languages_of(model.config).target, measures)
        return {**measured, **figures}, translations

    def _sum_of_losses(self, model: PreTrainedModel, dataset: Dataset) -> torch.Tensor:
        tokens = dataset.select_columns(["input_ids", "labels"])
        share = batches_by_length(tokens, self.args.max_tokens, self.args.process_index, self.args.world_size)
        batches = (self.data_collator([tokens[index] for index in indices]) for indices in share)
        return sum_of_losses(model, batches, self.args.device)

    def translate(self, model: PreTrainedModel, sources: Sequence[str], **decoding: Any) -> list[str]:
        """Translates texts with the model's search and decoding options. Collective: the processes share the work."""
        translator = Translator(model, self.processing_class, self.target_tokenizer, max_tokens=self.args.max_tokens)
        processes = {"rank": self.args.process_index, "world_size": self.args.world_size}
        # A long validation is not silent. In several processes, one of them shows its share.
        progress = self.is_world_process_zero() and on_terminal(sys.stderr)
        # The searches do not call the model's `forward`, which has the precision of the training. On a CPU, they are
        # fastest in float32.
        with nullcontext() if self.args.device.type == "cpu" else self.accelerator.autocast():
            return translate_texts(translator, sources, progress=progress, **processes, **decoding)

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

        Older checkpoints are deleted only after that.
        """
        if not self._loss_is_finite():
            raise not_a_number(self.state.global_step, self.args.output_dir)
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
            raise _not_written(folder, error) from error
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            mark_complete(folder, scheduled=not self.stop_gently.saves_extra)
            delete_older(folder, limit, self.state.best_model_checkpoint)
        self.stop_gently.saves_extra = False
        self.accelerator.wait_for_everyone()

    def _loss_is_finite(self) -> bool:
        return bool(torch.isfinite(self._tr_loss).all())

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        config = self.model.config
        use_cache_in_training = getattr(config, "use_cache", True)
        config.use_cache = self._use_cache
        hub_token, self.args.hub_token = self.args.hub_token, None  # the library would pickle it into a file
        try:
            super()._save(output_dir, state_dict)
            if self.args.should_save and self.target_tokenizer is not self.processing_class:
                save_tokenizers(output_dir or self.args.output_dir, self.processing_class, self.target_tokenizer)
        finally:
            config.use_cache, self.args.hub_token = use_cache_in_training, hub_token

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

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with naming_damage(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: torch.nn.Module | None = None) -> None:
        with naming_damage(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with naming_damage(checkpoint):
            super()._load_rng_state(checkpoint)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Warns of missing weights, except tied ones: a checkpoint has them under another name."""
        tied = getattr(self.model, "all_tied_weights_keys", {})
        missing = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result._replace(missing_keys=missing))

    def _is_finished(self, checkpoint: Path) -> bool:
        """Checks a checkpoint and returns whether no update is left to do; then it loads its weights."""
        _require_same_architecture(self.model, checkpoint)
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


def describe_update(sampler: TokenBatchSampler, args: TranslationTrainingArguments) -> str:
    """Returns a sentence about the size of an update: its limit, and what updates hold on average."""
    updates = len(sampler) // args.batches_per_update
    source, target = (tokens / updates for tokens in sampler.tokens())
    batches = "1 batch" if args.batches_per_update == 1 else f"{args.batches_per_update} batches"
    return (
        f"An update has {batches} of at most {args.max_tokens:,} + {args.max_tokens:,} tokens ({args.world_size} "
        f"process(es), {args.gradient_accumulation_steps} for each), on average {source:,.0f} + {target:,.0f} tokens. "
        f"An epoch has {updates:,} updates, {sampler.padding()}."
    )


# Arguments of the library's trainer that have no effect here: what to do instead.
WITHOUT_EFFECT = {
    "compute_loss_func": "add an objective to OBJECTIVES in training/objectives and name it in args.objective",
    "preprocess_logits_for_metrics": "metrics are computed from translations; use compute_metrics",
}


def _refuse_without_effect(arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if name not in WITHOUT_EFFECT:
            raise TypeError(f"TranslationTrainer has no argument {name!r}.")
        if value is not None:
            raise ValueError(f"{name} has no effect in TranslationTrainer: {WITHOUT_EFFECT[name]}.")


def _as_array(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Rows of different lengths as one array, padded as labels are."""
    array = np.full((len(rows), max(map(len, rows))), IGNORED_LABEL)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array


def _not_written(folder: Path, error: Exception) -> OSError:
    last = last_good_checkpoint(folder.parent)
    return OSError(f"The checkpoint {folder} could not be written ({error}). {last} Is the disk full?")


def _require_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, target_tokenizer: PreTrainedTokenizerBase
) -> None:
    config = model.config
    has_both = target_tokenizer is not tokenizer or getattr(tokenizer, "separate_vocabs", False)  # MarianMT's
    if getattr(config, "target_vocab_size", None) is not None and not has_both:
        raise ValueError(
            f"The model has a separate target vocabulary of {config.target_vocab_size:,} tokens, but there is only "
            f"one tokenizer: give the target tokenizer in the subfolder {TARGET!r} of the tokenizer."
        )
    target_size = getattr(config, "decoder_vocab_size", None) or config.vocab_size
    for name, size, side in [
        ("vocab_size", config.vocab_size, tokenizer),
        ("target vocabulary", target_size, target_tokenizer),
    ]:
        if len(side) > size:
            raise ValueError(
                f"The tokenizer has {len(side):,} tokens but the model's {name} is {size:,}: they do not belong "
                "together. Use the model's own tokenizer, or resize_token_embeddings."
            )


def _require_same_architecture(model: PreTrainedModel, checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    if not path.is_file():
        raise ValueError(f"{checkpoint} is not a checkpoint: it has no config.json.")
    saved, ours = read_object(path), json.loads(model.config.to_json_string(use_diff=False))
    for name in ("model_type", *type(model.config).__annotations__):
        if name in saved and name != "use_cache" and saved[name] != ours.get(name):
            raise ValueError(
                f"{checkpoint} was trained with {name}={saved[name]!r}, but this run has {ours.get(name)!r}: resume "
                "with the recipe it was started with, or start a new output_dir."
            )
