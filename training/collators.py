"""Collators: from a list of examples to a padded batch."""

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedTokenizerBase


class RetokenizingCollator:
    """Tokenises the text of each example again before another collator pads it, so BPE-dropout differs in each epoch.

    Token batches are planned with the lengths without dropout. With dropout, texts have more tokens (about 20% more
    for 0.1): leave room in `max_tokens`.

    Args:
        collator: The collator that pads, for instance `DataCollatorForSeq2Seq`.
        tokenizer: The source or joint tokenizer, from `with_bpe_dropout`.
        target_tokenizer: The target tokenizer, from `with_bpe_dropout`.
    """

    def __init__(
        self,
        collator: Callable[[list[dict[str, Any]]], Any],
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
    """Passes only `input_ids` and `labels` to another collator, which could not pad the text columns.

    Args:
        collator: The collator that pads.
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], Any]):
        self.collator = collator

    def __call__(self, examples: list[dict[str, Any]]) -> Any:
        return self.collator([{name: example[name] for name in ("input_ids", "labels")} for example in examples])
