"""Training objectives: what a training loop minimises, by name.

An objective is a callable `objective(model, inputs, num_items_in_batch) -> loss`. Both training loops call it for each
batch and know nothing else about the loss. A recipe chooses one with `objective: NAME`. To add one, register a factory
from anywhere before training starts:

    from vanilla_transformer.training.objectives.cross_entropy import OBJECTIVES

    def make_mine(args, config, pad_token_id):
        def objective(model, inputs, num_items_in_batch=None):
            ...
            return loss
        return objective

    OBJECTIVES["mine"] = make_mine

`num_items_in_batch` is the number of target tokens in the whole update: in all its batches and in all processes. The
loss is a sum over the tokens of `inputs` divided by that number, so the losses of an update add up to a mean per
token. Without it, the loss is the mean over the tokens of `inputs`.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from accelerate.utils import extract_model_from_parallel
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.trainer_utils import unwrap_peft_model

from vanilla_transformer.models.label_smoothing import LabelSmoothedCrossEntropy
from vanilla_transformer.models.spelling import suggestion
from vanilla_transformer.training.objectives.guided_alignment import GuidedAlignment, require_guidable
from vanilla_transformer.training.objectives.mask_predict_loss import Glancing, MaskedTargets, UniformMasking
from vanilla_transformer.training.objectives.r_drop import RDropCrossEntropy


if TYPE_CHECKING:
    from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments


NumItems: TypeAlias = torch.Tensor | int | None


class Objective(Protocol):
    """Computes the loss of one batch."""

    def __call__(
        self, model: PreTrainedModel, inputs: dict[str, Any], num_items_in_batch: NumItems = None
    ) -> torch.Tensor: ...


class Criterion(Protocol):
    """Computes the loss of one forward pass, from logits or from the states below the output layer."""

    def of_logits(
        self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: NumItems = None
    ) -> torch.Tensor: ...

    def of_states(
        self,
        states: torch.Tensor,
        weight: torch.Tensor,
        labels: torch.Tensor,
        num_items_in_batch: NumItems = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor: ...


@dataclass(frozen=True)
class CriterionObjective:
    """An objective that is one forward pass and one criterion.

    A model whose `forward` takes `criterion` applies it to its states, so that not all logits are in memory at once.
    Any other model returns its logits.

    Args:
        criterion: The criterion.
        copies: How often each sentence pair is in the batch. The copies of a batch follow one another; dropout differs
            between them.
    """

    criterion: Criterion
    copies: int = 1

    def __call__(
        self, model: PreTrainedModel, inputs: dict[str, Any], num_items_in_batch: NumItems = None
    ) -> torch.Tensor:
        if self.copies > 1:
            if isinstance(model, torch.nn.DataParallel):
                raise ValueError(
                    "This objective needs all copies of a sentence in one batch, and DataParallel shares the batch "
                    "out: on several GPUs, start one process per GPU with accelerate launch."
                )
            inputs = {name: _repeat(value, self.copies) for name, value in inputs.items()}
        if takes_criterion(model):  # it gives its last states to `criterion.of_states`, which needs no whole logits
            return model(**inputs, criterion=self.criterion, num_items_in_batch=num_items_in_batch)["loss"]
        labels = inputs["labels"]
        logits = model(**{name: value for name, value in inputs.items() if name != "labels"})["logits"]
        return self.criterion.of_logits(logits, labels, num_items_in_batch)


def takes_criterion(model: torch.nn.Module) -> bool:
    """Returns whether the model's `forward` takes a `criterion`, whatever wraps the model (DDP, FSDP, PEFT ...)."""
    unwrapped = unwrap_peft_model(extract_model_from_parallel(model, keep_torch_compile=False))
    # The class, because Accelerate replaces the `forward` of an instance for mixed precision.
    return _has_criterion(type(unwrapped).forward)


@cache
def _has_criterion(forward: Callable[..., Any]) -> bool:
    return "criterion" in inspect.signature(forward).parameters


def _repeat(value: Any, copies: int) -> Any:
    return torch.cat([value] * copies) if torch.is_tensor(value) else value


def make_cross_entropy(
    args: "TranslationTrainingArguments", config: PreTrainedConfig, pad_token_id: int | None
) -> Objective:
    """Label-smoothed cross-entropy (section 5.4); epsilon is the config's `label_smoothing`, 0 where it has none."""
    _require_masks(args, config, wanted=False)
    return _label_smoothed(args, config, pad_token_id)


def _label_smoothed(
    args: "TranslationTrainingArguments", config: PreTrainedConfig, pad_token_id: int | None
) -> CriterionObjective:
    epsilon = getattr(config, "label_smoothing", 0.0)
    return CriterionObjective(LabelSmoothedCrossEntropy(epsilon, args.smoothing, pad_token_id))


def make_r_drop(args: "TranslationTrainingArguments", config: PreTrainedConfig, pad_token_id: int | None) -> Objective:
    """Label-smoothed cross-entropy of two passes that must agree; `r_drop` is the weight of the agreement."""
    _require_masks(args, config, wanted=False)
    epsilon = getattr(config, "label_smoothing", 0.0)
    return CriterionObjective(RDropCrossEntropy(epsilon, args.smoothing, pad_token_id, alpha=args.r_drop), copies=2)


def make_guided_alignment(
    args: "TranslationTrainingArguments", config: PreTrainedConfig, pad_token_id: int | None
) -> Objective:
    """Label-smoothed cross-entropy, and word links that one head learns, which `guided_alignment` weighs. The config
    records the layer, so that the head is used for alignments."""
    require_guidable(config)
    _require_masks(args, config, wanted=False)
    config.alignment_layer = max(config.decoder_layers - 2, 0)
    return GuidedAlignment(_label_smoothed(args, config, pad_token_id), config.alignment_layer, args.guided_alignment)


def make_uniform_masking(
    args: "TranslationTrainingArguments", config: PreTrainedConfig, pad_token_id: int | None
) -> Objective:
    """Label-smoothed cross-entropy of masked tokens, a random number of them, and of the length."""
    _require_masks(args, config, wanted=True)
    return UniformMasking(_label_smoothed(args, config, pad_token_id), MaskedTargets.of(config))


def make_glancing(
    args: "TranslationTrainingArguments", config: PreTrainedConfig, pad_token_id: int | None
) -> Objective:
    """The same with fewer masks the worse the model's first guess is; `glancing_ratio` says how many fewer."""
    _require_masks(args, config, wanted=True)
    return Glancing(_label_smoothed(args, config, pad_token_id), MaskedTargets.of(config), args.glancing_ratio)


def _require_masks(args: "TranslationTrainingArguments", config: PreTrainedConfig, *, wanted: bool) -> None:
    """Refuses an objective that does not fit the model, and noise on a prefix that the decoder does not read."""
    has_mask = getattr(config, "decoder_is_causal", True) is False
    if has_mask != wanted:
        fitting = "uniform_masking or glancing" if has_mask else "cross_entropy or r_drop"
        raise ValueError(
            f"objective={args.objective!r} does not fit model_type {config.model_type}: set it to {fitting}."
        )
    for name in ("prefix_replace", "prefix_drop"):
        if wanted and getattr(args, name):
            raise ValueError(f"{name}={getattr(args, name)}: this decoder reads masks and no prefix. Leave it out.")


OBJECTIVES: dict[str, Callable[["TranslationTrainingArguments", PreTrainedConfig, int | None], Objective]] = {
    "cross_entropy": make_cross_entropy,
    "r_drop": make_r_drop,
    "guided_alignment": make_guided_alignment,
    "uniform_masking": make_uniform_masking,
    "glancing": make_glancing,
}


def require_objective(name: str) -> None:
    """Raises a ValueError for a name that is not registered."""
    if name not in OBJECTIVES:
        raise ValueError(
            f"objective={name!r} is unknown{suggestion(name, OBJECTIVES)}: choose one of {', '.join(OBJECTIVES)}, or "
            "register your own in OBJECTIVES of vanilla_transformer.training.objectives.cross_entropy."
        )


def make_objective(
    args: "TranslationTrainingArguments", config: PreTrainedConfig, pad_token_id: int | None
) -> Objective:
    """Makes the objective that the recipe names.

    Args:
        args: The training arguments: `objective`, and the keys that the factory reads.
        config: The model's config.
        pad_token_id: The padding token of the target vocabulary.
    """
    require_objective(args.objective)
    return OBJECTIVES[args.objective](args, config, pad_token_id)
