"""Objectives of the conditional masked language model: which target tokens are masked, and the loss of these.

- `uniform_masking` (Ghazvininejad et al. 2019): of the N tokens of a target, a number drawn from 1 ... N is masked.
- `glancing` (Qian et al. 2021, "Glancing Transformer for Non-Autoregressive Neural Machine Translation"): a first pass
  predicts the target from masks only. As many reference tokens as `glancing_ratio` times the number of its mistakes
  are shown, at random positions. All others are masked. The easier a sentence is for the model, the less it is shown.

`</s>` is never masked: the length says where it is.

Shapes: B sentences, T target tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from vanilla_transformer.models.label_smoothing import IGNORED_LABEL


@dataclass(frozen=True)
class MaskedTargets:
    """The masked inputs of a decoder.

    Args:
        mask_token_id: The token `<mask>`.
        eos_token_id: The token `</s>`.
        pad_token_id: The token in place of ignored labels.
    """

    mask_token_id: int
    eos_token_id: int
    pad_token_id: int

    @classmethod
    def of(cls, config: PreTrainedConfig) -> "MaskedTargets":
        """Takes the tokens from a model's config."""
        return cls(config.mask_token_id, config.eos_token_id, config.pad_token_id)

    def maskable(self, labels: torch.Tensor) -> torch.Tensor:
        """Which labels [B, T] can be masked: all but `</s>` and padding."""
        return (labels != IGNORED_LABEL) & (labels != self.eos_token_id)

    def mask(self, labels: torch.Tensor, masked: torch.Tensor) -> torch.Tensor:
        """The decoder's input [B, T]: the labels with `<mask>` at the marked positions."""
        tokens = labels.masked_fill(labels == IGNORED_LABEL, self.pad_token_id)
        return tokens.masked_fill(masked, self.mask_token_id)

    def uniform(self, labels: torch.Tensor) -> torch.Tensor:
        """Marks a random number of tokens of each target, 1 to all of them, at random positions."""
        maskable = self.maskable(labels)
        lengths = maskable.sum(1)
        number = (torch.rand(len(labels), device=labels.device) * lengths).long() + 1  # 1 ... N, each as probable
        return choose(maskable, number)

    def glancing(self, labels: torch.Tensor, predicted: torch.Tensor, ratio: float) -> torch.Tensor:
        """Marks all tokens but a random choice, `ratio` times as many as `predicted` [B, T] has wrong."""
        maskable = self.maskable(labels)
        wrong = ((predicted != labels) & maskable).sum(1)
        return maskable & ~choose(maskable, (wrong * ratio).long())


def choose(candidates: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Marks `number` [B] of the candidates [B, T] of each row at random, or all if there are fewer."""
    order = torch.rand(candidates.shape, device=candidates.device).masked_fill(~candidates, 2.0)
    return candidates & (order.argsort(1).argsort(1) < number[:, None])


@dataclass(frozen=True)
class UniformMasking:
    """Masks at random before another objective computes the loss.

    Args:
        objective: Computes the loss of the masked tokens, such as a `CriterionObjective`.
        targets: The tokens of the model.
    """

    objective: Callable[..., torch.Tensor]
    targets: MaskedTargets

    def __call__(
        self, model: PreTrainedModel, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        labels = inputs["labels"]
        decoder_input_ids = self.targets.mask(labels, self.masked(model, inputs))
        return self.objective(model, {**inputs, "decoder_input_ids": decoder_input_ids}, num_items_in_batch)

    def masked(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """Which tokens of a batch to mask [B, T]."""
        return self.targets.uniform(inputs["labels"])


@dataclass(frozen=True)
class Glancing(UniformMasking):
    """Shows the model some reference tokens, the more the worse its first pass is.

    Args:
        ratio: Number of tokens shown for each mistake of the first pass.
    """

    ratio: float = 0.5

    @torch.no_grad()
    def masked(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        labels = inputs["labels"]
        sources = {name: value for name, value in inputs.items() if name not in ("labels", "decoder_input_ids")}
        all_masked = self.targets.mask(labels, self.targets.maskable(labels))
        predicted = model(**sources, decoder_input_ids=all_masked)["logits"].argmax(-1)
        return self.targets.glancing(labels, predicted, self.ratio)
