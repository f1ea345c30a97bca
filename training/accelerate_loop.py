"""Train with a plain loop: the data, batches, objective and schedule of train.py, on Accelerate alone.

    python training/accelerate_loop.py training/recipes/demo.yaml --output_dir runs/demo_loop
    ACCELERATE_USE_CPU=true torchrun --standalone --nproc_per_node 2 training/accelerate_loop.py RECIPE

It takes the same recipes, writes checkpoints every `save_steps` updates with Accelerate's own `save_state`, and
resumes with --resume_from_checkpoint last (or auto). Read it to see what a training step is, or copy it to change one.
For evaluation during training, early stopping, TensorBoard and the Hub, use train.py.
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.data_loader import DataLoaderShard
from accelerate.utils import set_seed
from datasets import Dataset
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader
from transformers import DataCollatorForSeq2Seq, PreTrainedModel

from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.label_smoothing import IGNORED_LABEL
from vanilla_transformer.models.tokenization_vanilla_transformer import save_tokenizers
from vanilla_transformer.safe_files.atomic_writes import whole_folder
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.run_arguments import new_directions, parse_recipe, with_languages
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.build_model import make_model
from vanilla_transformer.training.data.collators import TokenColumns, WithoutFullMask
from vanilla_transformer.training.data.prepared_text import prepare_text
from vanilla_transformer.training.data.token_batches import TokenBatchSampler, column_lengths
from vanilla_transformer.training.data.word_links import LINKS
from vanilla_transformer.training.learning_rate import inverse_sqrt_schedule
from vanilla_transformer.training.objectives.cross_entropy import Objective, make_objective
from vanilla_transformer.training.run_folder.checkpoints import (
    checkpoint_of_step,
    delete_older,
    find_checkpoint,
    mark_complete,
    naming_damage,
    remove_marks,
    step_of,
)
from vanilla_transformer.training.run_folder.run_directory import (
    describe_changes,
    exclusive,
    require_fresh,
    require_resumable,
    write_description,
    write_recipe,
)
from vanilla_transformer.training.waiting import one_first


Batch = dict[str, Any]


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        train(*parse_recipe(__doc__, argv))


def train(
    model_arguments: ModelArguments,
    corpus_arguments: CorpusArguments,
    vocabulary_arguments: VocabularyArguments,
    args: TranslationTrainingArguments,
) -> list[float]:
    """Trains, saves the model in `output_dir/model`, and returns the losses of the updates that were made."""
    require_supported(model_arguments, corpus_arguments, args)
    accelerator = make_accelerator(args)
    folder = Path(args.output_dir)
    with exclusive(folder, take_over=args.take_over) if accelerator.is_main_process else nullcontext():
        return _train(accelerator, model_arguments, corpus_arguments, vocabulary_arguments, args)


def _train(
    accelerator: Accelerator,
    model_arguments: ModelArguments,
    corpus_arguments: CorpusArguments,
    vocabulary_arguments: VocabularyArguments,
    args: TranslationTrainingArguments,
) -> list[float]:
    folder = Path(args.output_dir)
    corpus_arguments = with_languages(corpus_arguments, model_arguments)
    checkpoint = find_checkpoint(folder, args.resume_from_checkpoint)
    require_fresh(folder, resume=str(checkpoint) if checkpoint else None)
    resumed: dict[str, Any] = {}
    if checkpoint:
        resumed = require_resumable(folder, checkpoint, model_arguments, corpus_arguments, vocabulary_arguments, args)
        if sentence := describe_changes(resumed):
            accelerator.print(sentence)
    set_seed(args.seed)
    accelerator.print(f"{accelerator.num_processes} process(es)")
    if sentence := new_directions(corpus_arguments, model_arguments):
        accelerator.print(sentence)
    with one_first("data"):
        learn = accelerator.is_main_process and not checkpoint
        data = prepare_text(model_arguments, corpus_arguments, vocabulary_arguments, args, learn=learn)
    datasets, tokenizers = data.datasets, data.tokenizers
    model = make_model(model_arguments, *tokenizers, directions=corpus_arguments.all_directions)
    if accelerator.is_main_process:
        write_description(folder, model, data.corpus, datasets, args, data.digests, resumed)
        write_recipe(folder, model_arguments, corpus_arguments, vocabulary_arguments, args)

    columns = [name for name in ("input_ids", "labels", LINKS) if name in datasets["train"].column_names]
    pairs = datasets["train"].select_columns(columns)
    sampler = make_sampler(pairs, args)
    collator = WithoutFullMask(TokenColumns(DataCollatorForSeq2Seq(tokenizers[0], model=model)))
    loader = DataLoader(pairs, batch_sampler=sampler, collate_fn=collator, **args.loader_options)
    optimizer = make_optimizer(model, args)
    schedule = inverse_sqrt_schedule(optimizer, args.get_warmup_steps(args.max_steps))
    objective = make_objective(args, model.config, (tokenizers[1] or tokenizers[0]).pad_token_id)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.register_for_checkpointing(schedule)  # a prepared schedule would make a step for each process
    done = 0
    if checkpoint:
        with naming_damage(checkpoint):
            accelerator.load_state(str(checkpoint))
        done = step_of(checkpoint)

    model.train()
    losses: list[float] = []
    start = time.perf_counter()
    for batches in updates(loader, sampler, args, done):
        loss = accumulate_gradients(accelerator, model, objective, batches)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss).item())
        step = done + len(losses)
        if step % max(int(args.logging_steps), 1) == 0:
            accelerator.print(progress(step, losses, args.max_steps, time.perf_counter() - start))
        if args.save_strategy == "steps" and step % max(int(args.save_steps), 1) == 0:
            save_checkpoint(accelerator, checkpoint_of_step(folder, step), args.save_total_limit)

    if accelerator.is_main_process:
        with whole_folder(folder / "model", known_by="config.json", overwrite=True) as temporary:
            accelerator.unwrap_model(model).save_pretrained(temporary)
            save_tokenizers(temporary, *tokenizers)
    accelerator.print(f"model in {folder / 'model'}")
    # Release the model before the process group. In the other order, DDP's destructor waits for the group's threads
    # while it holds Python's lock, and they wait for that lock (torch 2.13, gloo).
    model, optimizer, loader = accelerator.free_memory(model, optimizer, loader)
    accelerator.end_training()
    return losses


def accumulate_gradients(
    accelerator: Accelerator, model: PreTrainedModel, objective: Objective, batches: list[Batch]
) -> torch.Tensor:
    """Adds up the gradients of one update and returns this process's share of its loss."""
    # The loss of an update is the mean over all its tokens: those of every batch in every process.
    tokens = accelerator.reduce(sum((batch["labels"] != IGNORED_LABEL).sum() for batch in batches))
    total = torch.zeros((), device=accelerator.device)
    for number, batch in enumerate(batches, start=1):
        # The processes exchange gradients only once, after the last batch.
        with nullcontext() if number == len(batches) else accelerator.no_sync(model):
            loss = objective(model, batch, tokens)
            # DDP averages the gradients of the processes, but their losses must be added.
            accelerator.backward(loss * accelerator.num_processes)
        total += loss.detach()
    return total


def updates(
    loader: DataLoaderShard, sampler: TokenBatchSampler, args: TranslationTrainingArguments, done: int
) -> Iterator[list[Batch]]:
    """Yields this process's batches of each update that is left. An epoch is a whole number of updates."""
    in_epoch = len(sampler) // args.batches_per_update
    for epoch in count(done // in_epoch):
        loader.set_epoch(epoch)  # Accelerate's loader counts its passes, and would start again from 0
        sampler.set_epoch(epoch, start_batch=(done % in_epoch) * args.batches_per_update)
        batches = iter(loader)
        while group := list(islice(batches, args.gradient_accumulation_steps)):
            if done == args.max_steps:
                return
            yield group
            done += 1


# --- checkpoints ---


def save_checkpoint(accelerator: Accelerator, folder: Path, limit: int | None) -> None:
    """Saves weights, optimizer, schedule and random state, and marks the checkpoint when all processes are done."""
    if accelerator.is_main_process:
        remove_marks(folder)
    accelerator.save_state(str(folder))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        mark_complete(folder, scheduled=True)
        delete_older(folder, limit, best=None)


# --- the parts ---


def make_accelerator(args: TranslationTrainingArguments) -> Accelerator:
    """Makes the accelerator without its gradient accumulation: the loop divides by the tokens of the whole update."""
    return Accelerator(
        cpu=args.use_cpu,
        mixed_precision="bf16" if args.bf16 else "fp16" if args.fp16 else None,  # None: the launcher's
        dataloader_config=DataLoaderConfiguration(dispatch_batches=False, non_blocking=args.dataloader_pin_memory),
    )


def make_sampler(pairs: Dataset, args: TranslationTrainingArguments) -> TokenBatchSampler:
    """Makes the sampler of token batches, the same in all processes."""
    return TokenBatchSampler(
        column_lengths(pairs, "input_ids"),
        column_lengths(pairs, "labels"),
        max_tokens=args.max_tokens,
        batches_multiple_of=args.batches_per_update,
        seed=args.seed,
    )


def make_optimizer(model: PreTrainedModel, args: TranslationTrainingArguments) -> Optimizer:
    """Makes the paper's Adam. (Without weight decay, AdamW is Adam.)"""
    return AdamW(
        model.parameters(),
        lr=args.rate_for(model.config),
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
        weight_decay=0.0,
        fused=True,
    )


def progress(step: int, losses: list[float], max_steps: int, seconds: float) -> str:
    """Returns a line with the step, the loss, the speed and the remaining time."""
    speed = len(losses) / seconds
    minutes_left = (max_steps - step) / speed / 60
    return f"step {step:>6,}  loss {losses[-1]:.4f}  {speed:.1f} updates/s  {minutes_left:.0f} min left"


def require_supported(
    model_arguments: ModelArguments, corpus_arguments: CorpusArguments, args: TranslationTrainingArguments
) -> None:
    """Refuses recipes with keys that this loop does not read."""
    if args.lr_scheduler_type != "inverse_sqrt" or args.max_steps < 1 or corpus_arguments.streaming:
        raise ValueError("This loop supports only inverse_sqrt, max_steps and corpora on disk: use train.py.")
    if model_arguments.lora_rank:
        raise ValueError(f"This loop does not merge lora_rank={model_arguments.lora_rank}: use train.py.")
    for name in (
        *("bpe_dropout", "prefix_replace", "prefix_drop", "ema_decay"),
        *("max_grad_norm", "weight_decay", "early_stopping"),
    ):
        if getattr(args, name):
            raise ValueError(
                f"This loop does not support {name}: leave it out, add it to your copy of the loop, or use train.py."
            )


if __name__ == "__main__":
    main()
