"""Train with the loop in plain sight: the same data, batches, loss and schedule as train.py, on Accelerate alone.

    python training/train_accelerate.py training/recipes/demo.yaml --output_dir runs/demo_loop
    ACCELERATE_USE_CPU=true torchrun --standalone --nproc_per_node 2 training/train_accelerate.py RECIPE

Takes the same recipes. Read it to learn what a training step is, or copy it to change one; for evaluation on the way,
early stopping, TensorBoard and the Hub there is train.py.
"""

import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count, islice
from pathlib import Path

from vanilla_transformer.training.arguments import errors_as_sentences
from vanilla_transformer.training.train import make_model, parse_recipe, prepare_data


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        train(*parse_recipe(__doc__, argv))


def train(model_arguments, corpus_arguments, vocabulary_arguments, args) -> list[float]:
    """Trains, saves the model in `output_dir/model`, and returns the loss of every update."""
    import torch
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import set_seed
    from torch.utils.data import DataLoader
    from transformers import DataCollatorForSeq2Seq

    from vanilla_transformer.atomic_writes import whole_folder
    from vanilla_transformer.loss import LabelSmoothedCrossEntropy
    from vanilla_transformer.tokenization_vanilla_transformer import TARGET
    from vanilla_transformer.training.batching import TokenBatchSampler, column_lengths
    from vanilla_transformer.training.run_directory import require_fresh, write_description, write_recipe
    from vanilla_transformer.training.schedule import inverse_sqrt_schedule

    refuse_what_the_loop_lacks(corpus_arguments, args)
    # Accumulation is done by hand below, so that the loss can be divided by the tokens of the whole update.
    accelerator = Accelerator(
        cpu=args.use_cpu,
        mixed_precision="bf16" if args.bf16 else "fp16" if args.fp16 else "no",
        dataloader_config=DataLoaderConfiguration(dispatch_batches=False),
    )
    folder = Path(args.output_dir)
    require_fresh(folder, resume=None)
    set_seed(args.seed)
    with accelerator.main_process_first():
        corpus, datasets, tokenizers = prepare_data(
            model_arguments, corpus_arguments, vocabulary_arguments, folder, learn=accelerator.is_main_process
        )
    pairs = datasets["train"].select_columns(["input_ids", "labels"])
    model = make_model(model_arguments, *tokenizers)
    if accelerator.is_main_process:
        write_recipe(folder, model_arguments, corpus_arguments, vocabulary_arguments, args)
        write_description(folder, model, corpus, datasets, args)

    sampler = TokenBatchSampler(
        column_lengths(pairs, "input_ids"),
        column_lengths(pairs, "labels"),
        max_tokens=args.max_tokens,
        batches_multiple_of=accelerator.num_processes * args.gradient_accumulation_steps,
        seed=args.seed,
    )
    collator = DataCollatorForSeq2Seq(tokenizers[0], model=model)
    warmup = args.get_warmup_steps(args.max_steps)
    rate = args.papers_rate(model.config.d_model) if args.learning_rate is None else args.learning_rate
    optimizer = torch.optim.AdamW(  # without weight decay, AdamW is Adam
        model.parameters(), lr=rate, betas=(args.adam_beta1, args.adam_beta2), eps=args.adam_epsilon, weight_decay=0.0
    )
    schedule = inverse_sqrt_schedule(optimizer, warmup)
    criterion = LabelSmoothedCrossEntropy(model.config.label_smoothing, args.smoothing, tokenizers[0].pad_token_id)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(pairs, batch_sampler=sampler, collate_fn=collator)
    )

    model.train()
    losses, start = [], time.perf_counter()
    for step, batches in enumerate(
        updates(loader, sampler, args.gradient_accumulation_steps, args.max_steps), start=1
    ):
        # The loss of an update is the mean over all its tokens: those of every batch in every process.
        tokens = accelerator.reduce(sum((batch["labels"] != -100).sum() for batch in batches))
        total = torch.zeros((), device=accelerator.device)
        for number, batch in enumerate(batches, start=1):
            # Gradients need to meet only once, with the last batch.
            with nullcontext() if number == len(batches) else accelerator.no_sync(model):
                loss = model(**batch, criterion=criterion, num_items_in_batch=tokens).loss
                # The processes' gradients are averaged, but their losses are meant to be added.
                accelerator.backward(loss * accelerator.num_processes)
            total += loss.detach()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

        losses.append(accelerator.reduce(total).item())
        if step % max(int(args.logging_steps), 1) == 0:
            speed = step / (time.perf_counter() - start)
            left = (args.max_steps - step) / speed
            accelerator.print(
                f"step {step:>6,}  loss {losses[-1]:.4f}  {speed:.1f} updates/s  {left / 60:.0f} min left"
            )

    if accelerator.is_main_process:
        with whole_folder(folder / "model", known_by="config.json", overwrite=True) as temporary:
            accelerator.unwrap_model(model).save_pretrained(temporary)
            tokenizers[0].save_pretrained(temporary)
            if tokenizers[1] is not None:
                tokenizers[1].save_pretrained(temporary / TARGET)
    accelerator.print(f"model in {folder / 'model'}")
    # What holds on to the process group goes before the group itself. Were it the last to let go, it would wait for
    # the group's threads while they wait for Python's lock, which it holds (torch 2.13, gloo).
    model, optimizer, loader = accelerator.free_memory(model, optimizer, loader)
    accelerator.end_training()
    return losses


def updates(loader, sampler, accumulation: int, number: int) -> Iterator[list[dict]]:
    """The batches of each update, epoch after epoch. By its sampler, an epoch is a whole number of updates."""
    for epoch in count():
        sampler.set_epoch(epoch)
        batches = iter(loader)
        while group := list(islice(batches, accumulation)):
            if not number:
                return
            yield group
            number -= 1


def refuse_what_the_loop_lacks(corpus_arguments, args) -> None:
    if args.resume_from_checkpoint:
        raise ValueError("This loop writes no checkpoints to resume from: train.py does.")
    if args.lr_scheduler_type != "inverse_sqrt" or args.max_steps < 1 or corpus_arguments.streaming:
        raise ValueError(
            "This loop knows inverse_sqrt, max_steps and corpora on disk only: for the rest use train.py."
        )
    for name in (
        *("bpe_dropout", "prefix_replace", "prefix_drop", "ema_decay"),
        *("max_grad_norm", "weight_decay", "early_stopping"),
    ):
        if getattr(args, name):
            raise ValueError(f"This loop does without {name}: leave it out, add it to the loop, or use train.py.")


if __name__ == "__main__":
    main()
