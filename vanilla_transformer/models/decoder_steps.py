"""The seam between a search and a model: a search asks a `Stepper` for the logits of the next token.

Shapes: B sentences, K beams, P tokens of the prefix, T tokens so far, V vocabulary. A hypothesis is [T, 2]: for each
of its tokens the id, and the beam slot of the previous step that it continues.
"""

from typing import Any, Protocol, TypeGuard

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache

from .host_waits import can_look


class Stepper(Protocol):
    """Runs a decoder for a search, from a prefix on, one token of all hypotheses at a time.

    A model class may bring its own: its method `make_stepper(beams, model_kwargs)` returns it, or `None`.
    """

    can_drop: bool
    """Whether `keep` works."""

    def start(self, prefix: torch.Tensor) -> torch.Tensor:
        """Returns the logits [B, 1, V] after a prefix [B, P], which all hypotheses of a sentence share."""

    def step(self, hypotheses: torch.Tensor) -> torch.Tensor:
        """Returns the logits [B, K, V] after the newest token of hypotheses [B, K, T, 2]."""

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences from the batch."""


def make_stepper(model: PreTrainedModel, beams: int, model_kwargs: dict[str, Any]) -> Stepper:
    """Returns the model's own stepper, or else one that runs any encoder-decoder of the library.

    Args:
        model: The model.
        beams: Number of beams, K.
        model_kwargs: What `generate` prepared for the model, such as the encoder's output.
    """
    if hasattr(model, "make_stepper") and (stepper := model.make_stepper(beams, model_kwargs)) is not None:
        return stepper
    return RowPerBeam(model, beams, model_kwargs)


class RowPerBeam:
    """Runs any encoder-decoder of the library: a row of the batch is one beam of one sentence."""

    def __init__(self, model: PreTrainedModel, beams: int, model_kwargs: dict):
        self.model, self.beams, self.kwargs = model, beams, model_kwargs
        cache = model_kwargs.get("past_key_values")
        caches = [cache.self_attention_cache, cache.cross_attention_cache] if is_pair(cache) else []
        self.can_drop = bool(caches) and all(isinstance(part, DynamicCache) for part in caches)

    def start(self, prefix: torch.Tensor) -> torch.Tensor:
        return self._run(prefix.repeat_interleave(self.beams, dim=0), first=True)[:, :1]

    def step(self, hypotheses: torch.Tensor) -> torch.Tensor:
        if self.kwargs.get("use_cache"):
            self._reorder(hypotheses[:, :, -1, 1])
        return self._run(hypotheses[..., 0].flatten(0, 1), first=False)

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences from the batch."""
        beams = torch.arange(self.beams, device=sentences.device)
        rows = (sentences[:, None] * self.beams + beams).flatten()
        self.kwargs["past_key_values"].batch_select_indices(rows)
        encoded = self.kwargs["encoder_outputs"]
        self.kwargs["encoder_outputs"] = type(encoded)(last_hidden_state=encoded.last_hidden_state[rows])
        for name, value in self.kwargs.items():
            if torch.is_tensor(value) and value.dim() > 0:
                self.kwargs[name] = value[rows]

    def _run(self, tokens: torch.Tensor, first: bool) -> torch.Tensor:
        length = None if first or not self.kwargs.get("use_cache") else 1
        inputs = self.model.prepare_inputs_for_generation(
            tokens, next_sequence_length=length, is_first_iteration=first, **self.kwargs
        )
        outputs = self.model(**inputs, return_dict=True)
        self.kwargs = self.model._update_model_kwargs_for_generation(outputs, self.kwargs, is_encoder_decoder=True)
        return outputs.logits[:, -1].unflatten(0, (-1, self.beams))

    def _reorder(self, origins: torch.Tensor) -> None:
        """Gives each beam the keys and values of the beam it continues. Those of the source are the same for all."""
        rows = torch.arange(origins.numel(), device=origins.device).view_as(origins)
        origin_rows = rows[:, :1] + origins
        if can_look(rows) and torch.equal(origin_rows, rows):
            return
        cache = self.kwargs["past_key_values"]
        (cache.self_attention_cache if is_pair(cache) else cache).reorder_cache(origin_rows.flatten())


def is_pair(cache: Cache | None) -> TypeGuard[EncoderDecoderCache]:
    """Whether a cache has a part for the target and one for the source."""
    return isinstance(cache, EncoderDecoderCache)
