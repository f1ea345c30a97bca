"""Collators: from a list of examples to a padded batch."""

from collections.abc import Callable
from random import Random
from typing import Any

import torch

from vanilla_transformer.training.data.bpe_dropout import BpeDropout
from vanilla_transformer.training.data.word_links import LINKS


class RetokenizingCollator:
    """Tokenises the text of each example again before another collator pads it, so BPE-dropout differs in each epoch.

    The splits of a batch depend on the seed, the epoch and the batch's text, and not on earlier batches. So they are
    the same after a resume, and in whichever worker or process the batch is collated.

    Token batches are planned with the lengths without dropout. With dropout, texts have more tokens (about 25% more
    for 0.1): leave room in `max_tokens`.

    Args:
        collator: The collator that pads, for instance `DataCollatorForSeq2Seq`.
        source: BPE-dropout of the source or joint tokenizer.
        target: BPE-dropout of the target tokenizer.
        seed: Seed of the choice among splits.
    """

    def __init__(
        self, collator: Callable[[list[dict[str, Any]]], Any], source: BpeDropout, target: BpeDropout, *, seed: int = 0
    ):
        self.collator, self.source, self.target, self.seed, self.epoch = collator, source, target, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, so that a batch with the same sentences is split differently in each epoch."""
        self.epoch = epoch

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        sources, targets = ([example[side] for example in examples] for side in ("source", "target"))
        random = Random(f"{self.seed} {self.epoch} {sources} {targets}")
        pairs = zip(self.source(sources, random), self.target(targets, random), strict=True)
        return self.collator([{"input_ids": source, "labels": target} for source, target in pairs])


class TokenColumns:
    """Passes only `input_ids` and `labels` to another collator, which could not pad the text columns.

    Links of examples that have some become a matrix [B, T, S], in which the links of a target token sum to 1.

    Args:
        collator: The collator that pads.
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], Any]):
        self.collator = collator

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        batch = self.collator([{name: example[name] for name in ("input_ids", "labels")} for example in examples])
        if LINKS in examples[0]:
            links = torch.zeros(*batch["labels"].shape, batch["input_ids"].shape[1])
            for row, example in enumerate(examples):
                sources, targets = torch.tensor(example[LINKS]).view(-1, 2).T
                links[row, targets, sources] = 1.0
            batch[LINKS] = links / links.sum(-1, keepdim=True).clamp(min=1)
        return batch


class WithoutFullMask:
    """Leaves out an attention mask that hides nothing.

    A model would find out itself, but on the device, and the host would wait for the answer.

    Args:
        collator: The collator that pads.
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], Any]):
        self.collator = collator

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        batch = self.collator(examples)
        if "attention_mask" in batch and batch["attention_mask"].all():
            del batch["attention_mask"]
        return batch
