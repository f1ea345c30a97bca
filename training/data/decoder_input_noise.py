"""Noise on the teacher-forced prefix: some decoder input tokens are wrong on purpose.

In training, the decoder reads the reference; in translation, it reads its own output with its mistakes. Noise on the
prefix makes the decoder rely less on the exact prefix and more on the source. The labels do not change. Dropping
follows the word dropout of Bowman et al. (2016), section 3.1.

The prefix must be as long as the labels, so a dropped token becomes the unknown token. Masking it in the decoder's
attention would not hide it: its embedding still enters at its own position, where the next token is predicted.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from vanilla_transformer.models.modeling_vanilla_transformer import shift_right
from vanilla_transformer.models.tokenization_vanilla_transformer import language_tags


@dataclass(frozen=True)
class PrefixNoise:
    """Builds decoder inputs from labels, shifted right by one, with noise on a share of the tokens.

    Each ordinary token is replaced or dropped independently. Special tokens, the start token and padding never change,
    and they are never drawn as a replacement.

    Args:
        vocab_size: Number of token ids.
        special_ids: Ids of all special tokens and tags of languages.
        decoder_start_token_id: First id of every decoder input.
        pad_token_id: Id at positions whose label is ignored.
        unk_token_id: Id that stands for a dropped token.
        replace: Share of tokens to replace by random ordinary tokens.
        drop: Share of tokens to replace by the unknown token.
    """

    vocab_size: int
    special_ids: tuple[int, ...]
    decoder_start_token_id: int
    pad_token_id: int
    unk_token_id: int
    replace: float = 0.0
    drop: float = 0.0

    def __post_init__(self) -> None:
        if min(self.replace, self.drop) < 0 or self.replace + self.drop > 1:
            raise ValueError(
                f"replace={self.replace} and drop={self.drop} must be numbers from 0 to 1 whose sum is at most 1."
            )
        if not self.is_ordinary.any():
            raise ValueError(
                f"All {self.vocab_size} ids are special, which leaves none to draw from; check vocab_size and "
                "special_ids."
            )

    @classmethod
    def for_tokenizer(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        decoder_start_token_id: int,
        *,
        replace: float = 0.0,
        drop: float = 0.0,
    ) -> PrefixNoise:
        """Returns noise with the ids of a tokenizer."""
        for name in ("pad_token", "unk_token"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"The tokenizer has no {name}, which noise needs; set one.")
        return cls(
            vocab_size=len(tokenizer),
            special_ids=(*tokenizer.all_special_ids, *language_tags(tokenizer).values()),
            decoder_start_token_id=decoder_start_token_id,
            pad_token_id=tokenizer.pad_token_id,
            unk_token_id=tokenizer.unk_token_id,
            replace=replace,
            drop=drop,
        )

    @property
    def is_ordinary(self) -> torch.Tensor:
        """Boolean table [V]: true for ids that are not special tokens."""
        table = torch.ones(self.vocab_size, dtype=torch.bool)
        named = (self.decoder_start_token_id, self.pad_token_id, self.unk_token_id)
        table[list({*self.special_ids, *named})] = False
        return table

    def __call__(self, labels: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        """Returns decoder inputs for labels [B, T], with noise from `generator` (torch's default one if None)."""
        prefix = shift_right(labels, self.decoder_start_token_id, self.pad_token_id)  # [B, T]
        if not (self.replace or self.drop):
            return prefix
        is_ordinary = self.is_ordinary.to(labels.device)
        ordinary_ids = is_ordinary.nonzero().squeeze(1)
        draw = torch.rand(labels.shape, generator=generator, device=labels.device)  # [B, T]
        substitute = ordinary_ids[
            torch.randint(len(ordinary_ids), labels.shape, generator=generator, device=labels.device)
        ]
        substitute = torch.where(draw < self.drop, self.unk_token_id, substitute)
        noisy = (draw < self.drop + self.replace) & is_ordinary[prefix]
        return torch.where(noisy, substitute, prefix)


class NoisyPrefixCollator:
    """A collator that adds `decoder_input_ids` with noise to the batches of another; for the training loader only.

    The noise of a batch depends on the seed, the epoch and the batch's labels, and not on earlier batches. So it is
    the same after a resume, and in whichever worker or process the batch is collated.

    Args:
        collator: The collator that pads the examples, for instance `DataCollatorForSeq2Seq`.
        noise: The noise.
        seed: Seed of the noise.
    """

    def __init__(self, collator: Callable[[list[dict]], Any], noise: PrefixNoise, *, seed: int = 0):
        self.collator, self.noise, self.seed, self.epoch = collator, noise, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, so that a batch with the same sentences gets new noise in each epoch."""
        self.epoch = epoch
        if hasattr(self.collator, "set_epoch"):
            self.collator.set_epoch(epoch)

    def __call__(self, examples: list[dict]) -> Any:
        batch = self.collator(examples)
        labels = batch["labels"]
        fingerprint = zlib.crc32(labels.cpu().numpy().tobytes(), zlib.crc32(f"{self.seed} {self.epoch}".encode()))
        generator = torch.Generator(labels.device).manual_seed(fingerprint)
        batch["decoder_input_ids"] = self.noise(labels, generator)
        return batch
