"""Noise on the teacher-forced prefix: training on decoder inputs that are not always right.

In training the decoder reads the reference, in translation its own output with all its mistakes. Replacing or dropping
a share of the tokens it reads makes it rely less on the exact prefix and more on the source. The labels stay as they
are. Dropping follows the word dropout of Bowman et al. (2016), section 3.1.

The length of the prefix must stay that of the labels, so a dropped token becomes the unknown token. Taking it out of
the decoder's attention mask would not hide it: its embedding still enters at its own position, right where the next
token is predicted.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from vanilla_transformer.translation_head import shift_right


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class PrefixNoise:
    """Builds decoder inputs from labels, shifted right by one, and puts noise on a share of the tokens.

    Each ordinary token is replaced or dropped independently of the others. Special tokens, the start token and padding
    among them, stay as they are, and none is ever drawn as a replacement.

    Args:
        vocab_size: Number of token ids.
        special_ids: Ids of all special tokens.
        decoder_start_token_id: First id of every decoder input.
        pad_token_id: Id at positions whose label is ignored.
        unk_token_id: Id that stands for a dropped token.
        replace: Share of tokens replaced by a random ordinary one.
        drop: Share of tokens dropped, that is replaced by the unknown token.
    """

    vocab_size: int
    special_ids: tuple[int, ...]
    decoder_start_token_id: int
    pad_token_id: int
    unk_token_id: int
    replace: float = 0.0
    drop: float = 0.0

    def __post_init__(self):
        if min(self.replace, self.drop) < 0 or self.replace + self.drop > 1:
            raise ValueError(
                f"Shares of {self.replace} replaced and {self.drop} dropped tokens are no shares of a whole; give two "
                "numbers from 0 to 1 whose sum is at most 1."
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
        """Noise with the ids of a tokenizer."""
        for name in ("pad_token", "unk_token"):
            if getattr(tokenizer, name) is None:
                raise ValueError(f"The tokenizer has no {name}, which noise needs; set one.")
        return cls(
            vocab_size=len(tokenizer),
            special_ids=tuple(tokenizer.all_special_ids),
            decoder_start_token_id=decoder_start_token_id,
            pad_token_id=tokenizer.pad_token_id,
            unk_token_id=tokenizer.unk_token_id,
            replace=replace,
            drop=drop,
        )

    @property
    def is_ordinary(self) -> torch.Tensor:
        """A table over all ids: true where the id is no special token."""
        table = torch.ones(self.vocab_size, dtype=torch.bool)
        named = (self.decoder_start_token_id, self.pad_token_id, self.unk_token_id)
        table[list({*self.special_ids, *named})] = False
        return table

    def __call__(self, labels: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
        """Decoder inputs for `labels` [B, T], with noise drawn from `generator` (torch's own by default)."""
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

    The noise of a batch depends on the seed, the epoch and the batch's labels, not on the batches before it. So it is
    the same after a resume and whichever loader worker or process collates the batch.

    Args:
        collator: The collator that pads the examples, for instance `DataCollatorForSeq2Seq`.
        noise: The noise to put on.
        seed: Seed of the noise.
    """

    def __init__(self, collator: Callable[[list[dict]], Any], noise: PrefixNoise, *, seed: int = 0):
        self.collator, self.noise, self.seed, self.epoch = collator, noise, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, so that a batch that comes again in the same make-up gets new noise."""
        self.epoch = epoch

    def __call__(self, examples: list[dict]) -> Any:
        batch = self.collator(examples)
        labels = batch["labels"]
        fingerprint = zlib.crc32(labels.cpu().numpy().tobytes(), zlib.crc32(f"{self.seed} {self.epoch}".encode()))
        generator = torch.Generator(labels.device).manual_seed(fingerprint)
        batch["decoder_input_ids"] = self.noise(labels, generator)
        return batch
