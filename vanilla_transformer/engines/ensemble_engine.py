"""Decoding with several models at once: beam search over the mean of their probabilities, in torch.

    Translator.from_pretrained(["runs/seed1/model", "runs/seed2/model", "runs/seed3/model"])

The models may differ in architecture and size, but not in vocabulary. The search runs on the first one, with a stepper
that steps all of them: each has its own encoder states and its own cache.

Shapes: B batch, S source, T target, K beams, V vocabulary.
"""

import copy
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from vanilla_transformer.models.decoder_steps import Stepper, make_stepper
from vanilla_transformer.models.search_options import BeamSearchOptions, search_of

from .engine import FORCED, TokenIds
from .torch_engine import TorchBackend, longest_sequence


# Config fields in which the members must agree, because the ids of one are read by all.
SHARED_FIELDS = (
    *("vocab_size", "target_vocab_size", "placeholders"),
    *("pad_token_id", "eos_token_id", "decoder_start_token_id"),
)


class EnsembleBackend(TorchBackend):
    """Decodes with the mean of the members' probabilities. `config` and `generation_config` are the first member's.

    Args:
        members: The models.
        names: Their names, for errors.
    """

    title: ClassVar[str] = "the ensemble"

    def __init__(self, members: Sequence[PreTrainedModel], names: Sequence[str]):
        _require_compatible(members, names)
        super().__init__(members[0])
        self.members = [member.eval() for member in members]

    @classmethod
    def from_members(cls, names: Sequence[str | Path], **options: Any) -> "EnsembleBackend":
        """Loads the members; the options are those of `TorchBackend.from_pretrained`."""
        members = [TorchBackend.from_pretrained(name, **options).model for name in names]
        return cls(members, [str(name) for name in names])

    @property
    def longest_input(self) -> int | None:
        limits = [longest_sequence(member) for member in self.members]
        return min((limit for limit in limits if limit is not None), default=None)

    def require_options(self, options: dict[str, Any], *, sample: bool = False, glossary: bool = False) -> None:
        """Refuses sampling."""
        if sample:
            raise ValueError("An ensemble does not sample: give one model, or leave out sample.")

    def require_support(self, call: str) -> None:
        """Refuses attention: the members' layers have nothing in common."""
        if call not in FORCED:
            raise ValueError(f"An ensemble does not support {call}: give one model.")

    def _search_arguments(self, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
        def stepper_of(first: PreTrainedModel, beams: int, model_kwargs: dict[str, Any]) -> EnsembleStepper:
            others = [
                make_stepper(member, beams, _kwargs_of_member(member, batch, beams, model_kwargs))
                for member in self.members[1:]
            ]
            return EnsembleStepper([make_stepper(first, beams, model_kwargs), *others])

        return {"stepper_of": stepper_of}

    def _logits(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> torch.Tensor:
        inputs = {**self._padded(sources), "decoder_input_ids": self._padded(targets)["input_ids"]}
        return log_of_mean([member(**inputs).logits for member in self.members])


class EnsembleStepper:
    """Steps all members and returns the logarithm of their mean probabilities in place of logits.

    Args:
        steppers: The steppers of the members.
    """

    def __init__(self, steppers: Sequence[Stepper]):
        self.steppers = steppers
        self.can_drop = all(stepper.can_drop for stepper in steppers)

    def start(self, prefix: torch.Tensor) -> torch.Tensor:
        return log_of_mean([stepper.start(prefix) for stepper in self.steppers])

    def step(self, hypotheses: torch.Tensor) -> torch.Tensor:
        return log_of_mean([stepper.step(hypotheses) for stepper in self.steppers])

    def keep(self, sentences: torch.Tensor) -> None:
        for stepper in self.steppers:
            stepper.keep(sentences)


def log_of_mean(logits: Sequence[torch.Tensor]) -> torch.Tensor:
    """Returns log((p_1 + ... + p_n) / n) of the probabilities that n logits [..., V] stand for."""
    log_probabilities = torch.stack([part.float().log_softmax(-1) for part in logits])
    return log_probabilities.logsumexp(0) - math.log(len(logits))


def _kwargs_of_member(
    member: PreTrainedModel, batch: dict[str, torch.Tensor], beams: int, model_kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Returns what `generate` would prepare for this member alone: its encoder's states, and a cache of its kind."""
    states = member.get_encoder()(**batch)[0].repeat_interleave(beams, dim=0)
    kwargs = {**model_kwargs, "encoder_outputs": BaseModelOutput(last_hidden_state=states)}
    if kwargs.pop("past_key_values", None) is not None:
        config = copy.deepcopy(member.generation_config)
        config.use_cache, config.cache_implementation = True, None
        member._prepare_cache_for_generation(config, kwargs, None, len(states), 0)
    return kwargs


def _require_compatible(members: Sequence[PreTrainedModel], names: Sequence[str]) -> None:
    for member, name in zip(members, names, strict=True):
        if search_of(member) is not BeamSearchOptions:
            raise ValueError(f"{name} is not decoded by beam search: only models that are can be an ensemble.")
        for field in SHARED_FIELDS:
            first, other = (getattr(model.config, field, None) or None for model in (members[0], member))
            if first != other:
                raise ValueError(
                    f"{name} has {field}={other}, but {names[0]} has {first}: the models of an ensemble need the same "
                    "vocabulary."
                )
