"""Decoding with several models at once: beam search over the mean of their probabilities, in torch.

    Translator.from_pretrained(["runs/seed1/model", "runs/seed2/model", "runs/seed3/model"])

The models may differ in architecture and size, but not in vocabulary. Each member keeps its own encoder states and its
own cache. Beam search sees one model.

Shapes: B batch, S source, T target, K beams, V vocabulary, D_i width of member i.
"""

import copy
import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from vanilla_transformer.models import beam_search
from vanilla_transformer.models.beam_search import RowPerBeam, RowPerSentence, make_stepper
from vanilla_transformer.translation.searches import search_of

from .torch_engine import TorchBackend, longest_sequence


# Config fields in which the members must agree, because the ids of one are read by all.
SHARED_FIELDS = ("vocab_size", "target_vocab_size", "pad_token_id", "eos_token_id", "decoder_start_token_id")


class EnsembleBackend(TorchBackend):
    """Decodes with the mean of the members' probabilities.

    Args:
        model: The ensemble.
    """

    title: ClassVar[str] = "the ensemble"

    @classmethod
    def from_members(cls, names: Sequence[str | Path], **options: Any) -> "EnsembleBackend":
        """Loads the members; the options are those of `TorchBackend.from_pretrained`."""
        members = [TorchBackend.from_pretrained(name, **options).model for name in names]
        return cls(EnsembleModel(members, [str(name) for name in names]))

    @property
    def longest_input(self) -> int | None:
        limits = [longest_sequence(member) for member in self._model.members]
        return min((limit for limit in limits if limit is not None), default=None)

    def require_options(self, options: dict[str, Any]) -> None:
        """Refuses sampling."""
        if options.get("do_sample"):
            raise ValueError("An ensemble does not sample: give one model, or leave out sample.")

    def require_support(self, call: str) -> None:
        """Refuses attention: the members' layers have nothing in common."""
        if call != "score()":
            raise ValueError(f"An ensemble does not support {call}: give one model.")


class EnsembleModel(PreTrainedModel, GenerationMixin):
    """Several encoder-decoders as one, whose probabilities are the mean of theirs. It only decodes.

    `config` and `generation_config` are the first member's.

    Args:
        members: The models.
        names: Their names, for errors.
    """

    search_name = "beam_search"
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, members: Sequence[PreTrainedModel], names: Sequence[str]):
        _require_compatible(members, names)
        super().__init__(copy.deepcopy(members[0].config))
        self.generation_config = copy.deepcopy(members[0].generation_config)
        self.members = nn.ModuleList(members)
        self.encoder = EnsembleEncoder(members)

    def forward(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        decoder_input_ids: torch.LongTensor | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Returns log-probabilities [B, T, V] as logits."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "decoder_input_ids": decoder_input_ids}
        return Seq2SeqLMOutput(logits=log_of_mean([member(**inputs).logits for member in self.members]))

    def make_stepper(self, beams: int, model_kwargs: dict[str, Any]) -> "EnsembleStepper":
        """Returns what `beam_search` runs: the stepper of each member, with its own states and cache."""
        states = self.encoder.split(model_kwargs["encoder_outputs"].last_hidden_state)
        return EnsembleStepper(
            [
                make_stepper(member, beams, _kwargs_of_member(member, states_of_member, model_kwargs))
                for member, states_of_member in zip(self.members, states, strict=True)
            ]
        )

    def save_pretrained(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError("An ensemble is not saved: save its members, and load them together.")

    push_to_hub = save_pretrained


class EnsembleEncoder(nn.Module):
    """Runs the encoders of all members and puts their states side by side: [B, S, D_1 + D_2 + ...].

    Args:
        members: The models.
    """

    main_input_name = "input_ids"

    def __init__(self, members: Sequence[PreTrainedModel]):
        super().__init__()
        self.encoders = nn.ModuleList(member.get_encoder() for member in members)
        self.widths: list[int] = []

    def forward(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
    ) -> BaseModelOutput:
        states = [encoder(input_ids=input_ids, attention_mask=attention_mask)[0] for encoder in self.encoders]
        self.widths = [part.shape[-1] for part in states]
        return BaseModelOutput(last_hidden_state=torch.cat(states, dim=-1))

    def split(self, states: torch.Tensor) -> list[torch.Tensor]:
        """Returns the states of each member."""
        bounds = pairwise(accumulate(self.widths, initial=0))
        return [states[..., start:end].contiguous() for start, end in bounds]


class EnsembleStepper:
    """Steps all members and returns the logarithm of their mean probabilities in place of logits.

    Args:
        steppers: The steppers of the members.
    """

    def __init__(self, steppers: "Sequence[RowPerBeam | RowPerSentence]"):
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


def _kwargs_of_member(member: PreTrainedModel, states: torch.Tensor, model_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns what `generate` would prepare for this member alone: its encoder's states, and a cache of its kind."""
    kwargs = {**model_kwargs, "encoder_outputs": BaseModelOutput(last_hidden_state=states)}
    if kwargs.pop("past_key_values", None) is not None:
        config = copy.deepcopy(member.generation_config)
        config.use_cache, config.cache_implementation = True, None
        member._prepare_cache_for_generation(config, kwargs, None, len(states), 0)
    return kwargs


def _require_compatible(members: Sequence[PreTrainedModel], names: Sequence[str]) -> None:
    for member, name in zip(members, names, strict=True):
        if search_of(member) is not beam_search:
            raise ValueError(f"{name} is not decoded by beam search: only models that are can be an ensemble.")
        for field in SHARED_FIELDS:
            first, other = (getattr(model.config, field, None) for model in (members[0], member))
            if first != other:
                raise ValueError(
                    f"{name} has {field}={other}, but {names[0]} has {first}: the models of an ensemble need the same "
                    "vocabulary."
                )
