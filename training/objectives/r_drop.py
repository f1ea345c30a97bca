"""R-Drop (Liang et al. 2021, "R-Drop: Regularized Dropout for Neural Networks"): two passes with different dropout
must predict the same distribution.

The paper minimises, for each target token with the distributions p and q of the two passes,

    CE(p) + CE(q) + alpha * (KL(p || q) + KL(q || p)) / 2

Here the loss is half of that, so that its scale is that of one cross-entropy per token and the learning rate need not
change. `alpha` is the paper's; it used 5 for translation. The cross-entropy is label-smoothed, as without R-Drop.

Shapes: B sentences, T target tokens, V vocabulary, D d_model, N = B * T tokens.
"""

from dataclasses import dataclass

import torch
from transformers.utils import is_torchdynamo_compiling

from vanilla_transformer.models.devices import can_look
from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy


@dataclass(frozen=True)
class RDropCrossEntropy(LabelSmoothedCrossEntropy):
    """The R-Drop loss of a batch that holds every sentence twice: first all sentences, then all of them again.

    `num_items_in_batch` counts each target token once, as it does without R-Drop.

    Args:
        alpha: The weight of the agreement between the two passes, in the paper's convention.
    """

    alpha: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.alpha >= 0:
            raise ValueError(f"r_drop={self.alpha} must not be negative; the paper's alpha is 5.")

    def of_logits(
        self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """Returns the loss of logits [2B, T, V] for labels [2B, T]."""
        _require_copies(labels)
        return super().of_logits(_paired(logits), _paired(labels), _twice(num_items_in_batch))

    def of_states(
        self,
        states: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the loss of the logits `states @ weight.T + bias`, for states [2B, T, D] and labels [2B, T].

        The two passes of a token become neighbours, so every piece, which has an even number of rows, holds
        complete pairs.
        """
        _require_copies(labels)
        return super().of_states(_paired(states), weight, _paired(labels), _twice(num_items_in_batch), bias)

    def per_token(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns the losses [..., 2] of logits [..., 2, V]: cross-entropy, plus the pair's share of the agreement."""
        first, second = logits.float().log_softmax(-1).unbind(-2)
        divergence = ((first.exp() - second.exp()) * (first - second)).sum(-1)  # KL(p || q) + KL(q || p)
        return super().per_token(logits, labels) + self.alpha / 4 * divergence.unsqueeze(-1)

    def of_rows(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns `per_token` of logits [2N, V], rows 2n and 2n + 1 being one token."""
        return self.per_token(logits.unflatten(0, (-1, 2)), labels.unflatten(0, (-1, 2))).flatten()

    def losses_and_gradient_(
        self, logits: torch.Tensor, labels: torch.Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns `per_token` of logits [2N, V], rows 2n and 2n + 1 being one token, and the gradient of its sum.

        Both rows of a pair have a share of the same divergence, so its gradient has the weight alpha / 2 where the
        loss of a row has alpha / 4:

            p + alpha / 2 * (p * (log p - log q - KL(p || q) + 1) - q) - target     and the same with p and q exchanged
        """
        log_probabilities = logits.float().log_softmax(-1)
        losses = self._losses(log_probabilities, labels)
        probabilities = log_probabilities.exp()
        log_p, log_q = log_probabilities.unflatten(0, (-1, 2)).unbind(1)  # [N, V]
        p, q = probabilities.unflatten(0, (-1, 2)).unbind(1)
        ratio = log_p - log_q
        forward_kl = torch.linalg.vecdot(p, ratio).unsqueeze(-1)  # KL(p || q)
        backward_kl = -torch.linalg.vecdot(q, ratio).unsqueeze(-1)  # KL(q || p)
        losses = losses + (self.alpha / 4 * (forward_kl + backward_kl)).expand(-1, 2).flatten()
        # The factors of p and of q take the place of their logarithms, which are not needed any more.
        weight = self.alpha / 2
        torch.add(1 + weight * (1 - forward_kl), ratio, alpha=weight, out=log_p).mul_(p).sub_(q, alpha=weight)
        torch.add(1 + weight * (1 - backward_kl), ratio, alpha=-weight, out=log_q).mul_(q).sub_(p, alpha=weight)
        return losses, self._minus_target_(log_probabilities, labels, dtype)


def _paired(tensor: torch.Tensor) -> torch.Tensor:
    """[2B, T, ...] -> [B, T, 2, ...], the two passes of a token side by side."""
    return tensor.unflatten(0, (2, -1)).movedim(0, 2)


def _require_copies(labels: torch.Tensor) -> None:
    is_checked = can_look(labels) and not is_torchdynamo_compiling()
    if len(labels) % 2 or (is_checked and not torch.equal(*labels.chunk(2))):
        raise ValueError(
            "R-Drop needs every sentence twice in one batch, and the two halves of this batch of "
            f"{len(labels)} rows differ: on several GPUs, start one process per GPU with accelerate launch."
        )


def _twice(num_items_in_batch: torch.Tensor | int | None) -> torch.Tensor | int | None:
    """The criterion's sum runs over both passes of every token."""
    return None if num_items_in_batch is None else 2 * num_items_in_batch
