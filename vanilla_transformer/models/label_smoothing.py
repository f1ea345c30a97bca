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
from torch.utils.checkpoint import checkpoint
from transformers.utils import is_torchdynamo_compiling

from .devices import can_look


Smoothing = Literal["others", "all", "no_padding"]
IGNORED_LABEL = -100  # the library's label for positions without a loss
# Tokens whose logits are held at a time, an even number. On a CPU: few enough for its cache, enough for fast matrix
# products.
TOKENS_AT_A_TIME = 256
# Bytes of these logits elsewhere: every piece costs kernels and reads the whole output matrix.
BYTES_AT_A_TIME = 300_000_000


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
        """
        real = labels != IGNORED_LABEL
        if not torch.is_grad_enabled():  # then nothing needs a gradient
            weight, bias = weight.detach(), None if bias is None else bias.detach()
        if is_torchdynamo_compiling():
            total = self._compiled_sum(states, weight, bias, labels, real)
        elif can_look(states):
            total = _SumOfLosses.apply(states[real], weight, bias, labels[real], None, self)
        else:  # choosing positions by a mask would be a look at it
            total = _SumOfLosses.apply(*_without_padding(states, weight, bias, labels, real), self)
        return _mean(total, real, num_items_in_batch)

    def _compiled_sum(self, *tensors: torch.Tensor | None) -> torch.Tensor:
        """What `_SumOfLosses` computes, for a compiler: the backward pass computes the logits of a piece again."""
        states, weight, bias, labels, real = _without_padding(*tensors)

        def sum_of(piece: torch.Tensor, gold: torch.Tensor, is_real: torch.Tensor) -> torch.Tensor:
            return _sum(self.of_rows(F.linear(piece, weight, bias), gold), is_real)

        size = _tokens_at_a_time(len(weight))
        pieces = zip(*(tensor.split(size) for tensor in (states, labels, real)), strict=True)
        return torch.stack([checkpoint(sum_of, *piece, use_reentrant=False) for piece in pieces]).sum()

    def per_token(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The losses [...] of logits [..., V] for gold tokens [...]."""
        return self._losses(logits.float().log_softmax(-1), labels)

    def of_rows(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """`per_token` of logits [N, V]."""
        return self.per_token(logits, labels)

    def losses_and_gradient_(
        self, logits: torch.Tensor, labels: torch.Tensor, dtype: torch.dtype = torch.float32
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`per_token` of logits [N, V] and its gradient in `dtype`: softmax(logits) minus the target distribution."""
        logits = log_probabilities = logits.float().log_softmax(-1)
        losses = self._losses(log_probabilities, labels)
        return losses, self._minus_target_(log_probabilities.exp_(), labels, dtype)

    def _minus_target_(self, gradient: torch.Tensor, labels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Subtracts the target distribution of each label [N] from its row of [N, V], in place if it has the type."""
        share, gold = self._share(gradient.shape[-1]), labels[:, None]
        of_gold = gradient.gather(1, gold) - (1 - self.epsilon)
        # In float32: on a CPU, torch copies all of a bfloat16 tensor to scatter into it. The share is subtracted next.
        gradient.scatter_(1, gold, of_gold if self.smoothing == "all" else of_gold + share)
        if share:
            of_padding = gradient[:, self.pad_token_id].clone() if self.smoothing == "no_padding" else None
            # Subtracts and converts in one pass over the memory.
            out = gradient if gradient.dtype == dtype else torch.empty_like(gradient, dtype=dtype)
            gradient = torch.sub(gradient, share, out=out)
            if of_padding is not None:
                gradient[:, self.pad_token_id] = of_padding
        return gradient.to(dtype)

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
    """sum(per_token(states @ weight.T + bias, labels)). The forward pass also computes the gradients that are needed:
    in an evaluation none."""

    @staticmethod
    def forward(
        ctx: Any,
        states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        labels: torch.Tensor,
        real: torch.Tensor | None,
        criterion: LabelSmoothedCrossEntropy,
    ) -> torch.Tensor:
        """The arguments are those of `of_states` for N tokens. `real` [N] is 0 for padding, whose states are 0 too;
        `None` for no padding."""
        total = torch.zeros((), dtype=torch.float32, device=states.device)
        # Half precision would lose sums of many small numbers.
        sums = {"dtype": torch.float32, "device": states.device}
        of_states = torch.empty_like(states) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros(weight.shape, **sums) if ctx.needs_input_grad[1] else None
        of_bias = torch.zeros(len(weight), **sums) if ctx.needs_input_grad[2] else None
        given_dtype, dtype = weight.dtype, _dtype_of_products(states, weight)
        states, weight = states.to(dtype), weight.to(dtype)  # once, not for every piece
        size = TOKENS_AT_A_TIME if can_look(states) else _tokens_at_a_time(len(weight))
        for start in range(0, len(states), size):
            rows = slice(start, start + size)
            piece, gold, is_real = states[rows], labels[rows], None if real is None else real[rows]
            if not any(ctx.needs_input_grad):
                total += _sum(criterion.of_rows(F.linear(piece, weight, bias), gold), is_real)
                continue
            # Nobody but the criterion holds the logits, so it can free them.
            losses, gradient = criterion.losses_and_gradient_(F.linear(piece, weight, bias).float(), gold, dtype)
            total += _sum(losses, is_real)
            if of_bias is not None:
                of_bias += _sum(gradient, is_real)
            if of_states is not None:
                of_states[rows] = gradient @ weight
            if of_weight is not None and dtype == torch.float32:
                of_weight.addmm_(gradient.t(), piece)
            elif of_weight is not None:
                of_weight += gradient.t() @ piece
        ctx.save_for_backward(of_states, None if of_weight is None else of_weight.to(given_dtype), of_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Scaled in place: memory is at its peak here, and a copy of the weight's gradient would be the largest tensor.
        # (A second backward pass of the same loss is an error: torch notices the change.)
        return *(None if saved is None else saved.mul_(gradient) for saved in ctx.saved_tensors), None, None, None


def _without_padding(
    states: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    labels: torch.Tensor,
    real: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    """The same as rows of tokens, with padding that adds nothing to the loss nor to gradients: its states are 0."""
    states = states.masked_fill(~real.unsqueeze(-1), 0.0).flatten(0, -2)
    return states, weight, bias, labels.masked_fill(~real, 0).flatten(), real.flatten().float()


def _sum(values: torch.Tensor, is_real: torch.Tensor | None) -> torch.Tensor:
    """The sum of values [N, ...] over N tokens without padding."""
    if is_real is not None:
        values = values * is_real.view(-1, *[1] * (values.dim() - 1))
    return values.sum(0)


def _tokens_at_a_time(vocab_size: int) -> int:
    return max(BYTES_AT_A_TIME // (4 * vocab_size) // 256 * 256, 256)


def _dtype_of_products(states: torch.Tensor, weight: torch.Tensor) -> torch.dtype:
    """The type of `states @ weight.T`, which autocast may choose."""
    return (states.new_empty(1, 1) @ weight.new_empty(1, 1)).dtype


def _mean(total: torch.Tensor, real: torch.Tensor, num_items_in_batch: torch.Tensor | int | None) -> torch.Tensor:
    if num_items_in_batch is None:
        return total / real.sum()
    if isinstance(num_items_in_batch, torch.Tensor):
        num_items_in_batch = num_items_in_batch.to(total.device)
    return total / num_items_in_batch
