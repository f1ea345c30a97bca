"""Cross-entropy with label smoothing (section 5.4) in its three definitions, computed from logits or, in less time and
memory, from the states below the output layer.

The target distribution gives the gold token 1 - epsilon. Implementations differ in who shares epsilon:

- `"others"`: the V - 1 other tokens, epsilon / (V - 1) each. The authors' code (tensor2tensor) and fairseq.
- `"all"`: all V tokens, the gold one included, epsilon / V each. `torch.nn.functional.cross_entropy` and `Trainer`.
- `"no_padding"`: the V - 2 tokens that are neither gold nor padding. The Annotated Transformer and Joey NMT.

Shapes: N tokens, V vocabulary, D d_model.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


Smoothing = Literal["others", "all", "no_padding"]
IGNORED_LABEL = -100  # the library's label for positions without a loss
# Tokens whose logits are held at a time: few enough for the cache of a CPU, enough for fast matrix products.
TOKENS_AT_A_TIME = 256


@dataclass(frozen=True)
class LabelSmoothedCrossEntropy:
    """Cross-entropy against smoothed labels, for `model(criterion=...)`, `Trainer(compute_loss_func=...)` or your own
    training loop.

    With `num_items_in_batch` the loss is the sum over the batch divided by that number. So the losses of accumulated
    batches, and of several processes, add up to the loss of the whole batch.

    Args:
        epsilon: Probability taken from the gold token; 0 is plain cross-entropy.
        smoothing: Which tokens share that probability.
        pad_token_id: The padding token, needed for `"no_padding"` only.
    """

    epsilon: float = 0.1
    smoothing: Smoothing = "others"
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon < 1:
            raise ValueError(f"A label smoothing of {self.epsilon} must be at least 0 and less than 1.")
        if self.smoothing not in get_args(Smoothing):
            raise ValueError(
                f"smoothing={self.smoothing!r} is unknown: choose one of {', '.join(get_args(Smoothing))}."
            )
        if self.smoothing == "no_padding" and self.pad_token_id is None:
            raise ValueError("smoothing='no_padding' needs the pad_token_id.")

    def __call__(
        self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """The loss of a model's output for labels [B, T], with -100 for positions without a label."""
        return self.of_logits(outputs["logits"], labels, num_items_in_batch)

    def of_logits(
        self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """The loss of logits [B, T, V] for labels [B, T]."""
        ignored = labels == IGNORED_LABEL
        losses = self.per_token(logits, labels.masked_fill(ignored, 0)).masked_fill(ignored, 0.0)
        return _mean(losses.sum(), ~ignored, num_items_in_batch)

    def of_states(
        self,
        states: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The loss of the logits `states @ weight.T + bias`, for states [B, T, D] and the output layer's weight [V, D]
        and, if it has one, bias [V].

        The logits are never held all at once: the loss and its gradient are computed for a few tokens at a time.
        Positions without a label are skipped.
        """
        real = labels != IGNORED_LABEL
        total = _SumOfLosses.apply(states[real], weight, bias, labels[real], self)
        return _mean(total, real, num_items_in_batch)

    def per_token(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The losses [...] of logits [..., V] for gold tokens [...]."""
        return self._losses(logits.float().log_softmax(-1), labels)

    def losses_and_gradient_(self, logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`per_token` of logits [N, V] and its gradient, softmax(logits) minus the target distribution."""
        log_probabilities = logits.float().log_softmax(-1)
        losses = self._losses(log_probabilities, labels)
        return losses, self._minus_target_(log_probabilities.exp_(), labels)

    def _minus_target_(self, gradient: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Subtracts the target distribution of each label [N] from its row of [N, V], in place."""
        share, gold = self._share(gradient.shape[-1]), labels[:, None]
        of_gold = gradient.gather(1, gold) - (1 - self.epsilon) - (share if self.smoothing == "all" else 0.0)
        if share:
            of_padding = gradient[:, self.pad_token_id].clone() if self.smoothing == "no_padding" else None
            gradient -= share
            if of_padding is not None:
                gradient[:, self.pad_token_id] = of_padding
        return gradient.scatter_(1, gold, of_gold)

    def _losses(self, log_probabilities: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        gold = log_probabilities.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
        if not self.epsilon:
            return -gold
        shared = log_probabilities.sum(-1)  # over all tokens; those without a share are subtracted below
        if self.smoothing != "all":
            shared = shared - gold
        if self.smoothing == "no_padding":
            shared = shared - log_probabilities[..., self.pad_token_id]
        return -(1 - self.epsilon) * gold - self._share(log_probabilities.shape[-1]) * shared

    def _share(self, vocab_size: int) -> float:
        """Probability that label smoothing gives to each of the tokens that share epsilon."""
        return self.epsilon / (vocab_size - {"all": 0, "others": 1, "no_padding": 2}[self.smoothing])


CROSS_ENTROPY = LabelSmoothedCrossEntropy(epsilon=0.0)


class _SumOfLosses(torch.autograd.Function):
    """sum(per_token(states @ weight.T + bias, labels)). The forward pass also computes the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        criterion: LabelSmoothedCrossEntropy,
    ) -> torch.Tensor:
        total = torch.zeros((), dtype=torch.float32, device=states.device)
        # Half precision would lose sums of many small numbers.
        of_states, of_weight = torch.empty_like(states), torch.zeros_like(weight, dtype=torch.float32)
        given_dtype, device_type = weight.dtype, states.device.type
        if torch.is_autocast_enabled(device_type):  # converted once, not for every piece
            states, weight = (tensor.to(torch.get_autocast_dtype(device_type)) for tensor in (states, weight))
        of_bias = None if bias is None else torch.zeros_like(bias)
        pieces = (tensor.split(TOKENS_AT_A_TIME) for tensor in (states, labels, of_states))
        for piece, gold, of_piece in zip(*pieces, strict=True):
            losses, gradient = criterion.losses_and_gradient_(F.linear(piece, weight, bias), gold)
            total += losses.sum()
            gradient = gradient.to(weight.dtype)
            of_piece.copy_(gradient @ weight)
            if weight.dtype == torch.float32:
                of_weight.addmm_(gradient.t(), piece.float())
            else:
                of_weight += gradient.t() @ piece.to(weight.dtype)
            if of_bias is not None:
                of_bias += gradient.sum(0)
        ctx.save_for_backward(of_states, of_weight.to(given_dtype), of_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Scaled in place: memory is at its peak here, and a copy of the weight's gradient would be the largest tensor.
        # (A second backward pass of the same loss is an error: torch notices the change.)
        of_states, of_weight, of_bias = ctx.saved_tensors
        of_bias = None if of_bias is None else of_bias.mul_(gradient)
        return of_states.mul_(gradient), of_weight.mul_(gradient), of_bias, None, None


def _mean(total: torch.Tensor, real: torch.Tensor, num_items_in_batch: torch.Tensor | int | None) -> torch.Tensor:
    if num_items_in_batch is None:
        return total / real.sum()
    if isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device)
    return total / num_items_in_batch
