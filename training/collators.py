"""From examples to a batch: padding, and whatever training puts in the way on purpose."""

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedTokenizerBase


class RetokenizingCollator:
    """Cuts the text of each example anew before another collator pads it, so that BPE-dropout differs in each epoch.

    Token batches are laid out by the lengths of the plain cut. A noisy cut is longer, with a dropout of 0.1 by about a
    fifth: leave room in `max_tokens`.

    Args:
        collator: The collator that pads, for instance `DataCollatorForSeq2Seq`.
        tokenizer: The source's or joint tokenizer, from `with_bpe_dropout`.
        target_tokenizer: The target's.
    """

    def __init__(
        self,
        collator: Callable[[list[dict]], Any],
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase,
    ):
        self.collator, self.tokenizer, self.target_tokenizer = collator, tokenizer, target_tokenizer

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        sources = self.tokenizer([example["source"] for example in examples])["input_ids"]
        labels = self.target_tokenizer(text_target=[example["target"] for example in examples])["input_ids"]
        pairs = zip(sources, labels, strict=True)
        return self.collator([{"input_ids": source, "labels": target} for source, target in pairs])


class TokenColumns:
    """Hands a collator the columns it can pad, where the data set has its text beside them."""

    def __init__(self, collator: Callable[[list[dict]], Any]):
        self.collator = collator

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        return self.collator([{name: example[name] for name in ("input_ids", "labels")} for example in examples])
