"""`TranslationTrainer`: the library's `Seq2SeqTrainer` plus what translation the paper's way needs and it lacks."""

import copy
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset, IterableDataset
from safetensors import SafetensorError
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProgressCallback,
    Seq2SeqTrainer,
    TrainerCallback,
    TrainerState,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import SchedulerType, rotate_checkpoints
from transformers.utils import logging

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.loss import LabelSmoothedCrossEntropy
from vanilla_transformer.tokenization_vanilla_transformer import TARGET, with_bpe_dropout
from vanilla_transformer.training.averaging import COMPLETE, checkpoints
from vanilla_transformer.training.batching import TokenBatchSampler, WindowedTokenBatches, column_lengths
from vanilla_transformer.training.callbacks import (
    MetricsFile,
    SetEpoch,
    StopAtNan,
    StopGently,
    TokensPerSecond,
    not_a_number,
)
from vanilla_transformer.training.collators import RetokenizingCollator, TokenColumns
from vanilla_transformer.training.ema import ExponentialMovingAverage
from vanilla_transformer.training.evaluation import batches_by_length, perplexity, sum_of_losses, translate_ids
from vanilla_transformer.training.malloc import keep_freed_memory
from vanilla_transformer.training.metrics import bleu
from vanilla_transformer.training.prefix_noise import NoisyPrefixCollator, PrefixNoise
from vanilla_transformer.training.schedule import inverse_sqrt_schedule
from vanilla_transformer.training.training_arguments import TranslationTrainingArguments


logger = logging.get_logger(__name__)


class TranslationTrainer(Seq2SeqTrainer):
    """Trains translation models with token batches, the paper's schedule and loss, and BLEU on the way.

    The data sets have the columns `input_ids` and `labels`; `eval_dataset` also `source` and `target`, its text, where
    BLEU is wanted, and `train_dataset` where BPE-dropout is.

    Args:
        model: The model.
        args: The arguments.
        train_dataset: Tokenised pairs to train on.
        eval_dataset: Tokenised pairs to validate on.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target's, for separate vocabularies.
        callbacks: More callbacks.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        args: TranslationTrainingArguments,
        *,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ):
        self.target_tokenizer = target_tokenizer or tokenizer
        _require_vocabulary(model, tokenizer, self.target_tokenizer)
        if args.learning_rate is None:
            args.learning_rate = args.papers_rate(model.config.d_model)
        self.stop_gently = StopGently()
        self.ema = ExponentialMovingAverage(args.ema_decay) if args.ema_decay else None
        # The library turns the cache off for training and would save that: a saved model must decode with it.
        self._use_cache = model.config.use_cache
        epsilon = getattr(model.config, "label_smoothing", 0.0)
        self.criterion = LabelSmoothedCrossEntropy(epsilon, args.smoothing, tokenizer.pad_token_id)
        takes_criterion = isinstance(model, VanillaTransformerForConditionalGeneration)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            compute_loss_func=None if takes_criterion else self.criterion,
            callbacks=[SetEpoch(self), StopAtNan(), self.stop_gently, MetricsFile(args.output_dir), *callbacks],
        )
        if args.device.type == "cpu":
            keep_freed_memory()
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(TokensPerSecond())
        if self.ema is not None:
            if self.is_fsdp_enabled:
                raise ValueError("ema_decay does not go with FSDP: set it to 0 and average_checkpoints in its place.")
            self.add_callback(self.ema)
        if args.early_stopping:
            args.metric_for_best_model, args.greater_is_better = "bleu", True
            self.add_callback(EarlyStoppingCallback(args.early_stopping))

    # --- token batches ---

    def get_train_dataloader(self) -> DataLoader:
        dataset, args = self.train_dataset, self.args
        options = {
            "max_tokens": args.max_tokens,
            # So that every process has a batch for every update, and every update its full number of them.
            "batches_multiple_of": args.world_size * args.gradient_accumulation_steps,
            "seed": args.data_seed if args.data_seed is not None else args.seed,
        }
        if isinstance(dataset, IterableDataset):
            self.sampler = WindowedTokenBatches(dataset, **options)
            return self.accelerator.prepare(self.sampler.dataloader(self.training_collator()))
        source, target = column_lengths(dataset, "input_ids"), column_lengths(dataset, "labels")
        self.sampler = TokenBatchSampler(source, target, **options)
        logger.info(f"Token batches: {self.sampler.padding()}")
        loader = DataLoader(
            dataset,
            batch_sampler=self.sampler,
            collate_fn=self.training_collator(),
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and args.device.type != "cpu",
        )
        return self.accelerator.prepare(loader)

    def training_collator(self) -> Callable[[list[dict]], Any]:
        """Pads; with BPE-dropout cuts the text anew, with noise spoils the decoder's prefix."""
        args, tokenizer = self.args, self.processing_class
        collator: Any = TokenColumns(self.data_collator)
        if args.bpe_dropout:
            noisy = [with_bpe_dropout(each, args.bpe_dropout) for each in (tokenizer, self.target_tokenizer)]
            collator = RetokenizingCollator(self.data_collator, *noisy)
        if args.prefix_replace or args.prefix_drop:
            start = self.model.config.decoder_start_token_id
            noise = PrefixNoise.for_tokenizer(
                self.target_tokenizer, start, replace=args.prefix_replace, drop=args.prefix_drop
            )
            collator = self.noisy_collator = NoisyPrefixCollator(collator, noise, seed=args.seed)
        return collator

    # --- the paper's loss ---

    def compute_loss(self, model, inputs: dict[str, Any], *args, **kwargs):
        if self.compute_loss_func is None:
            # The model applies it without ever holding all its logits; others hand out theirs.
            inputs = {**inputs, "criterion": self.criterion}
        return super().compute_loss(model, inputs, *args, **kwargs)

    # --- the paper's schedule ---

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None):
        if self.lr_scheduler is None and self.args.lr_scheduler_type == SchedulerType.INVERSE_SQRT:
            warmup = self.args.get_warmup_steps(num_training_steps)
            self.lr_scheduler = inverse_sqrt_schedule(optimizer or self.optimizer, warmup)
            self._created_lr_scheduler = True
        return super().create_scheduler(num_training_steps, optimizer)

    # --- evaluation ---

    def evaluate(self, eval_dataset: Dataset | None = None, ignore_keys=None, metric_key_prefix: str = "eval", **_):
        """Loss per token, perplexity and BLEU, each exact however the data are batched or dealt out."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        start = time.perf_counter()
        model = self.whole_model()
        training = model.training
        with_bleu = self.args.eval_bleu and "target" in dataset.column_names
        measured, _ = self._measure(model, dataset, with_bleu=with_bleu, num_beams=self.args.eval_beams)
        measured.pop("signature", None)  # only numbers can be logged
        model.train(training)

        metrics = {f"{metric_key_prefix}_{name}": value for name, value in measured.items()}
        metrics[f"{metric_key_prefix}_seconds"] = round(time.perf_counter() - start, 1)
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def score(self, model: PreTrainedModel, dataset: Dataset, hypotheses: Path) -> dict[str, Any]:
        """Loss, perplexity and sacreBLEU with its signature, decoded with the model's own settings; the translations
        are written beside."""
        measured, translations = self._measure(model, dataset, with_bleu=True)
        if self.args.should_save:
            hypotheses.write_text("".join(f"{' '.join(line.split())}\n" for line in translations), encoding="utf-8")
        return measured

    def whole_model(self) -> PreTrainedModel:
        """The model as one process has it: the one in training or, where the processes share out its weights (FSDP), a
        copy with all of them. All processes must ask for it; what each does with it then is its own affair."""
        model = self.accelerator.unwrap_model(self.model)
        if not any(isinstance(parameter, DTensor) for parameter in model.parameters()):
            return model
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
        with torch.random.fork_rng():  # weights that are drawn only to be replaced must not disturb training
            whole = type(model)(model.config).to(self.args.device)
        whole.generation_config = copy.deepcopy(model.generation_config)
        whole.load_state_dict(state)
        return whole.train(model.training)

    def _measure(
        self, model: PreTrainedModel, dataset: Dataset, *, with_bleu: bool, **generation
    ) -> tuple[dict[str, Any], list[str]]:
        model.eval()
        loss, tokens = self.accelerator.reduce(self._sum_of_losses(model, dataset)).tolist()
        measured: dict[str, Any] = {"loss": loss / tokens, "perplexity": perplexity(loss / tokens)}
        translations = self.translate(model, dataset, **generation) if with_bleu else []
        if with_bleu:
            measured["bleu"], measured["signature"] = bleu(translations, dataset["target"])
        return measured, translations

    def _sum_of_losses(self, model: PreTrainedModel, dataset: Dataset) -> torch.Tensor:
        tokens = dataset.select_columns(["input_ids", "labels"])
        shares = batches_by_length(tokens, self.args.max_tokens, self.args.process_index, self.args.world_size)
        batches = (self.data_collator([tokens[index] for index in share]) for share in shares)
        return sum_of_losses(model, batches, self.args.device)

    def translate(self, model: PreTrainedModel, dataset: Dataset, **generation) -> list[str]:
        """Translations of a tokenised data set, in its order, the work shared by all processes."""
        tokens = dataset.select_columns(["input_ids", "labels"])
        share = batches_by_length(tokens, self.args.max_tokens, self.args.process_index, self.args.world_size)
        found: list[tuple[int, list[int]]] = []
        for indices in share:
            sources = [tokens[index]["input_ids"] for index in indices]
            found += zip(indices, translate_ids(model, self.processing_class, sources, **generation), strict=True)
        ordered = [ids for _, ids in sorted(gather_object(found))]
        return self.target_tokenizer.batch_decode(ordered, skip_special_tokens=True)

    # --- checkpoints ---

    @property
    def stopped_by_hand(self) -> bool:
        return self.stop_gently.asked

    def save_final(self, model: PreTrainedModel, folder: Path) -> None:
        """The model with its tokenizers, as `from_pretrained` reads them; none of what only training needs."""
        model.config.use_cache = self._use_cache
        model.save_pretrained(folder)
        self.processing_class.save_pretrained(folder)
        if self.target_tokenizer is not self.processing_class:
            self.target_tokenizer.save_pretrained(folder / TARGET)

    def _save_checkpoint(self, model, trial) -> None:
        """Marks a checkpoint as whole once every process has written its part; only then may older ones go."""
        if not self._loss_is_finite():
            raise not_a_number(self.state.global_step, self.args.output_dir)
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        if self.args.should_save:
            (folder / COMPLETE).unlink(missing_ok=True)  # of an abandoned run through the same step
        try:
            super()._save_checkpoint(model, trial)
            if self.ema is not None and self.args.should_save:
                self.ema.save(folder)
        except (OSError, RuntimeError, SafetensorError) as error:
            raise _not_written(folder, error) from error
        finally:
            self.args.save_total_limit = limit
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            (folder / COMPLETE).touch()
            rotate_checkpoints(self.args.output_dir, limit, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()

    def _loss_is_finite(self) -> bool:
        return bool(torch.isfinite(self._tr_loss).all())

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        config = self.model.config
        in_training, config.use_cache = config.use_cache, self._use_cache
        try:
            super()._save(output_dir, state_dict)
            if self.target_tokenizer is not self.processing_class and self.args.should_save:
                self.target_tokenizer.save_pretrained(Path(output_dir or self.args.output_dir) / TARGET)
        finally:
            config.use_cache = in_training

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs):
        """Trains; `True` or `"last"` goes on from the newest whole checkpoint of the output folder."""
        if resume_from_checkpoint in (True, "last", "true", "True"):
            whole = checkpoints(self.args.output_dir)
            if not whole:
                raise ValueError(f"{self.args.output_dir} has no whole checkpoint to go on from: leave out resuming.")
            resume_from_checkpoint = str(whole[-1])
        if resume_from_checkpoint:
            _require_same_architecture(self.model, Path(resume_from_checkpoint))
            _require_last(Path(resume_from_checkpoint), self.args.output_dir)
            if isinstance(self.train_dataset, IterableDataset):
                logger.warning("A stream goes on exactly only within its first pass: later passes begin anew.")
            if self.ema is not None:
                self.ema.load(Path(resume_from_checkpoint), self.args.device)
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint) / TRAINER_STATE_NAME))
            if 0 < self.args.max_steps <= state.global_step:  # trained already: `Trainer` would make one update more
                self._load_from_checkpoint(resume_from_checkpoint)
                self.state = state
                return None
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)


def _require_last(checkpoint: Path, folder: str | Path) -> None:
    """What came after a checkpoint would be taken for this run's own: by the next `last`, and by the mean."""
    whole = checkpoints(folder)
    names = [path.name for path in whole]
    if checkpoint.resolve().parent == Path(folder).resolve() and checkpoint.name in names[:-1]:
        raise ValueError(
            f"{folder} has checkpoints after {checkpoint.name}, up to {names[-1]}: move them away to go on from it, "
            "or go on from the last."
        )


def _not_written(folder: Path, error: Exception) -> OSError:
    whole = checkpoints(folder.parent)
    last = f"The last good one is {whole[-1]}." if whole else "There was none before it."
    return OSError(f"The checkpoint {folder} could not be written ({error}). {last} Is the disk full?")


def _require_vocabulary(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, target_tokenizer: PreTrainedTokenizerBase
) -> None:
    config = model.config
    has_both = target_tokenizer is not tokenizer or getattr(tokenizer, "separate_vocabs", False)  # MarianMT's
    if getattr(config, "target_vocab_size", None) is not None and not has_both:
        raise ValueError(
            f"The model has a target vocabulary of its own ({config.target_vocab_size:,} pieces), but there is one "
            f"tokenizer only: give the target's, in the subfolder {TARGET!r} of the tokenizer."
        )
    output_size = getattr(config, "output_vocab_size", config.vocab_size)
    for name, size, each in [
        ("vocab_size", config.vocab_size, tokenizer),
        ("output_vocab_size", output_size, target_tokenizer),
    ]:
        if len(each) > size:
            raise ValueError(
                f"The tokenizer has {len(each):,} pieces but the model's {name} is {size:,}: they do not belong "
                "together. Use the model's own tokenizer, or resize_token_embeddings."
            )


def _require_same_architecture(model: PreTrainedModel, checkpoint: Path) -> None:
    path = checkpoint / "config.json"
    if not path.is_file():
        raise ValueError(f"{checkpoint} is not a checkpoint: it has no config.json.")
    saved, ours = json.loads(path.read_text(encoding="utf-8")), json.loads(model.config.to_json_string(use_diff=False))
    for name in ("model_type", *type(model.config).__annotations__):
        if name in saved and name != "use_cache" and saved[name] != ours.get(name):
            raise ValueError(
                f"{checkpoint} was trained with {name}={saved[name]!r}, but this run has {ours.get(name)!r}: resume "
                "with the recipe it was started with, or start a new output_dir."
            )
