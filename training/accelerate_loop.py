"""Train with a plain loop: the data, batches, objective and schedule of train.py, on Accelerate alone.

    python training/accelerate_loop.py training/recipes/demo.yaml --output_dir runs/demo_loop
    ACCELERATE_USE_CPU=true torchrun --standalone --nproc_per_node 2 training/accelerate_loop.py RECIPE

It takes the same recipes. Read it to see what a training step is, or copy it to change one. For evaluation during
training, early stopping, TensorBoard and the Hub, use train.py.
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
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
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.build_model import make_model
from vanilla_transformer.training.data.parallel_corpus import content_digests
from vanilla_transformer.training.data.token_batches import TokenBatchSampler, column_lengths
from vanilla_transformer.training.learning_rate import inverse_sqrt_schedule
from vanilla_transformer.training.objectives.cross_entropy import Objective, make_objective
from vanilla_transformer.training.run_folder.run_directory import (
    exclusive,
    require_fresh,
    write_description,
    write_recipe,
)
from vanilla_transformer.training.train import parse_recipe, prepare_data, with_languages


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
    """Trains, saves the model in `output_dir/model`, and returns the loss of every update."""
    require_supported(corpus_arguments, args)
    accelerator = make_accelerator(args)
    with exclusive(Path(args.output_dir)) if accelerator.is_main_process else nullcontext():
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
    require_fresh(folder, resume=None)
    set_seed(args.seed)
    with accelerator.main_process_first():
        corpus, datasets, tokenizers = prepare_data(
            model_arguments,
            corpus_arguments,
            vocabulary_arguments,
            folder,
            learn=accelerator.is_main_process,
            seed=args.seed,
        )
    model = make_model(model_arguments, *tokenizers, languages=corpus_arguments.languages)
    if accelerator.is_main_process:
        write_recipe(folder, model_arguments, corpus_arguments, vocabulary_arguments, args)
        write_description(folder, model, corpus, datasets, args, content_digests(corpus_arguments, corpus))

    pairs = datasets["train"].select_columns(["input_ids", "labels"])
    sampler = make_sampler(pairs, args, accelerator.num_processes)
    loader = DataLoader(pairs, batch_sampler=sampler, collate_fn=DataCollatorForSeq2Seq(tokenizers[0], model=model))
    optimizer = make_optimizer(model, args)
    schedule = inverse_sqrt_schedule(optimizer, args.get_warmup_steps(args.max_steps))
    objective = make_objective(args, model.config, (tokenizers[1] or tokenizers[0]).pad_token_id)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    model.train()
    losses: list[float] = []
    start = time.perf_counter()
    for batches in updates(loader, sampler, args.gradient_accumulation_steps, args.max_steps):
        loss = accumulate_gradients(accelerator, model, objective, batches)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(accelerator.reduce(loss).item())
        if len(losses) % max(int(args.logging_steps), 1) == 0:
            accelerator.print(progress(losses, args.max_steps, time.perf_counter() - start))

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


def updates(loader: DataLoader, sampler: TokenBatchSampler, accumulation: int, number: int) -> Iterator[list[Batch]]:
    """Yields the batches of each update, epoch after epoch. The sampler makes an epoch a whole number of updates."""
    for epoch in count():
        sampler.set_epoch(epoch)
        batches = iter(loader)
        while group := list(islice(batches, accumulation)):
            if not number:
                return
            yield group
            number -= 1


# --- the parts ---


def make_accelerator(args: TranslationTrainingArguments) -> Accelerator:
    """Makes the accelerator without its gradient accumulation: the loop divides by the tokens of the whole update."""
    return Accelerator(
        cpu=args.use_cpu,
        mixed_precision="bf16" if args.bf16 else "fp16" if args.fp16 else "no",
        dataloader_config=DataLoaderConfiguration(dispatch_batches=False),
    )


def make_sampler(pairs: Dataset, args: TranslationTrainingArguments, processes: int) -> TokenBatchSampler:
    """Makes the sampler of token batches for all processes."""
    return TokenBatchSampler(
        column_lengths(pairs, "input_ids"),
        column_lengths(pairs, "labels"),
        max_tokens=args.max_tokens,
        batches_multiple_of=processes * args.gradient_accumulation_steps,
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
    )


def progress(losses: list[float], max_steps: int, seconds: float) -> str:
    """Returns a line with the step, the loss, the speed and the remaining time."""
    speed = len(losses) / seconds
    minutes_left = (max_steps - len(losses)) / speed / 60
    return f"step {len(losses):>6,}  loss {losses[-1]:.4f}  {speed:.1f} updates/s  {minutes_left:.0f} min left"


def require_supported(corpus_arguments: CorpusArguments, args: TranslationTrainingArguments) -> None:
    """Refuses recipes with keys that this loop does not read."""
    if args.resume_from_checkpoint:
        raise ValueError("This loop writes no checkpoints to resume from: use train.py.")
    if args.lr_scheduler_type != "inverse_sqrt" or args.max_steps < 1 or corpus_arguments.streaming:
        raise ValueError("This loop supports only inverse_sqrt, max_steps and corpora on disk: use train.py.")
    for name in (
        *("bpe_dropout", "prefix_replace", "prefix_drop", "ema_decay"),
        *("max_grad_norm", "weight_decay", "early_stopping", "average_if_better"),
    ):
        if getattr(args, name):
            raise ValueError(
                f"This loop does not support {name}: leave it out, add it to your copy of the loop, or use train.py."
            )


if __name__ == "__main__":
    main()
