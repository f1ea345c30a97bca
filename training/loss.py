"""Label smoothing (section 5.4), under its three definitions.

The target distribution gives the gold token 1 - epsilon and shares epsilon out. Among whom, implementations differ:

- `"others"`: the V - 1 other tokens, epsilon / (V - 1) each. The authors' own (tensor2tensor), and fairseq's.
- `"all"`: all V tokens, the gold one included, epsilon / V each. `torch.nn.functional.cross_entropy` and `Trainer`.
- `"no_padding"`: the V - 2 tokens that are neither gold nor padding. The Annotated Transformer, and Joey NMT.

Shapes: N tokens, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
import torch.nn.functional as F


Smoothing = Literal["others", "all", "no_padding"]
IGNORED_LABEL = -100  # the library's mark for label positions without a loss


@dataclass(frozen=True)
class LabelSmoothedCrossEntropy:
    """Cross-entropy against smoothed labels, for `Trainer(compute_loss_func=...)` or a loop of your own.

    With `num_items_in_batch` the loss is the sum over the batch divided by it. So accumulated pieces, and the shares
    of several processes, add up to the loss of the whole batch.

    Args:
        epsilon: The share taken from the gold token; 0 is plain cross-entropy.
        smoothing: Among whom that share is divided.
        pad_token_id: The padding token; only `"no_padding"` asks for it.
    """

    epsilon: float = 0.1
    smoothing: Smoothing = "others"
    pad_token_id: int | None = None

    def __post_init__(self):
        if not 0 <= self.epsilon < 1:
            raise ValueError(f"A label smoothing of {self.epsilon} must be at least 0 and less than 1.")
        if self.smoothing not in get_args(Smoothing):
            raise ValueError(
                f"smoothing={self.smoothing!r} is unknown: choose one of {', '.join(get_args(Smoothing))}."
            )
        if self.smoothing == "no_padding" and self.pad_token_id is None:
            raise ValueError("smoothing='no_padding' needs the pad_token_id.")

    def __call__(self, outputs, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None):
        """The loss of a model's output for labels [B, T], -100 where there is none."""
        real = labels != IGNORED_LABEL
        losses = self.per_token(outputs["logits"][real], labels[real])
        if num_items_in_batch is None:
            return losses.mean()
        if torch.is_tensor(num_items_in_batch):
            num_items_in_batch = num_items_in_batch.to(losses.device)
        return losses.sum() / num_items_in_batch

    def per_token(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The losses [N] of logits [N, V] for gold tokens [N]."""
        logits = logits.float()
        gold = F.cross_entropy(logits, labels, reduction="none")  # -log p(gold)
        if not self.epsilon:
            return gold
        normaliser = logits.logsumexp(-1)
        everyone = logits.shape[-1] * normaliser - logits.sum(-1)  # the sum of -log p(v) over all v
        if self.smoothing == "all":
            shared = everyone / logits.shape[-1]
        elif self.smoothing == "others":
            shared = (everyone - gold) / (logits.shape[-1] - 1)
        else:
            padding = normaliser - logits[:, self.pad_token_id]
            shared = (everyone - gold - padding) / (logits.shape[-1] - 2)
        return (1 - self.epsilon) * gold + self.epsilon * shared
