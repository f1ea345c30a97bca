"""The seam between a search and a model: a search asks a `Stepper` for the logits of the next token.

There are two: `RowPerBeam` runs any encoder-decoder of the library, and `RowPerSentence` keeps the beams of a sentence
in one row of the batch. The room `cpu` of the package has a third one.

Shapes: B sentences, K beams, P tokens of the prefix, T tokens so far, S source tokens, H heads, D d_model, d width of
a head, V vocabulary. A hypothesis is [T, 2]: for each of its tokens the id, and the beam slot of the previous step
that it continues.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache

from .devices import can_look
from .full_attention import additive, full_mask
from .positions import AddedPositions, PositionEncoding


class Stepper(Protocol):
    """Runs a decoder for a search, from a prefix on, one token of all hypotheses at a time."""

    can_drop: bool
    """Whether `keep` works."""

    def start(self, prefix: torch.Tensor) -> torch.Tensor:
        """Returns the logits [B, 1, V] after a prefix [B, P], which all hypotheses of a sentence share."""

    def step(self, hypotheses: torch.Tensor) -> torch.Tensor:
        """Returns the logits [B, K, V] after the newest token of hypotheses [B, K, T, 2]."""

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences from the batch."""


# Faster ways, asked first: functions of the arguments of `make_stepper`, or of `mask_predict_search.make_passes`, that
# return `None` for a model they do not know. Whoever has one adds it.
FASTER_STEPPERS: list[Callable[..., "Stepper | None"]] = []
FASTER_PASSES: list[Callable[..., Callable[..., torch.Tensor] | None]] = []


def make_stepper(model: PreTrainedModel, beams: int, model_kwargs: dict[str, Any]) -> Stepper:
    """Returns the fastest stepper that can run a model.

    Args:
        model: The model.
        beams: Number of beams, K.
        model_kwargs: What `generate` prepared for the model, such as the encoder's output.
    """
    for make_faster in FASTER_STEPPERS:
        if (stepper := make_faster(model, beams, model_kwargs)) is not None:
            return stepper
    return (RowPerSentence if RowPerSentence.fits(model, model_kwargs) else RowPerBeam)(model, beams, model_kwargs)


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


class RowPerSentence:
    """Runs a decoder with full attention: a row of the batch is a sentence, and its beams are the row's tokens.

    All beams of a sentence look at one copy of the source's keys and values, in one product. Nothing is reordered: the
    keys and values of all beams stay where they were written, and a mask shows each beam those of its own tokens.
    """

    can_drop = True

    @staticmethod
    def fits(model: PreTrainedModel, model_kwargs: dict) -> bool:
        """Whether the decoder attends under any mask, on one device, and its cache may be replaced by this one."""
        decoder, cache = model.get_decoder(), model_kwargs.get("past_key_values")
        return (
            getattr(getattr(decoder, "self_attention", None), "takes_any_mask", False)  # else another library's model
            and model.config.decoder_is_causal
            and model.config._attn_implementation in ("eager", "sdpa", "sdpa_float64")
            and len(set(getattr(model, "hf_device_map", {}).values())) <= 1  # the whole model is on one device
            and bool(model_kwargs.get("use_cache"))
            and is_pair(cache)
            and isinstance(cache.self_attention_cache, DynamicCache)
            and not cache.get_seq_length()
            and model_kwargs.get("decoder_attention_mask") is None
        )

    def __init__(self, model: PreTrainedModel, beams: int, model_kwargs: dict):
        self.lm_head, self.decoder, self.beams = model.lm_head, model.get_decoder(), beams
        self.states = model_kwargs["encoder_outputs"].last_hidden_state[::beams]
        mask = model_kwargs.get("attention_mask")
        source_mask = None if mask is None else mask[::beams]
        self.source_mask = full_mask(model.config, self.states[:, :1], source_mask, self.states)
        layers = len(self.decoder.layers)
        self_attention = Cache(layers=[GrowingLayer() for _ in range(layers)])
        self.cache = EncoderDecoderCache(self_attention, Cache(layers=[DynamicLayer() for _ in range(layers)]))
        self.prefix_length = 0
        self.positions = StepPositions(self.decoder.embed_positions, self.decoder.embed_tokens.weight)

    def start(self, prefix: torch.Tensor) -> torch.Tensor:
        self.prefix_length = prefix.shape[1]
        embeddings = self.decoder.embed_tokens(prefix)
        mask = self.decoder.self_attention.make_mask(self.decoder.config, embeddings, None, is_causal=True)
        positions = torch.arange(self.prefix_length, device=prefix.device)
        return self.lm_head(self._run(embeddings, mask, self.prefix_length, positions)[:, -1:])

    def step(self, hypotheses: torch.Tensor) -> torch.Tensor:
        length = hypotheses.shape[2]
        embeddings = self.decoder.embed_tokens(hypotheses[:, :, -1, 0])  # [B, K, D]
        mask = self._visible(hypotheses, embeddings.dtype) if self.beams > 1 else None  # one beam sees everything
        return self.lm_head(self._run(embeddings, mask, length, *self.positions(length - 1)))

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences from the batch."""
        self.states = self.states[sentences]
        self.cache.self_attention_cache.batch_select_indices(sentences)
        self.cache.cross_attention_cache.batch_select_indices(sentences)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[sentences]

    def _run(
        self,
        embeddings: torch.Tensor,
        mask: torch.Tensor | None,
        length: int,
        positions: torch.Tensor,
        vectors: torch.Tensor | None = None,
    ) -> torch.Tensor:
        acts_on_scores = self.decoder.embed_positions.acts_on == "scores"
        return self.decoder.run(
            embeddings,
            positions,
            mask,
            self.states,
            self.source_mask,
            self.cache,
            key_positions=self._key_positions(length, positions.device) if acts_on_scores else None,
            position_vectors=vectors,
        )

    def _key_positions(self, length: int, device: torch.device) -> torch.Tensor:
        """Positions [P + steps * K] of all keys: those of the prefix, then K at each position."""
        prefix = torch.arange(self.prefix_length, device=device)
        generated = torch.arange(self.prefix_length, length, device=device)
        return torch.cat([prefix, generated.repeat_interleave(self.beams)])

    def _visible(self, hypotheses: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The mask [B, 1, K, P + steps * K] that shows each beam the keys of its own tokens."""
        sentences, beams = hypotheses.shape[:2]
        slots = torch.arange(beams, device=hypotheses.device)
        # `origins[t + 1]` is the beam slot that token t was written to; the newest token is still in its own slot.
        origins = hypotheses[:, :, self.prefix_length + 1 :, 1]  # [B, K, steps - 1]
        written_to = torch.cat([origins, slots[:, None].expand(sentences, -1, 1)], dim=-1)
        visible = (written_to[..., None] == slots).flatten(2)  # [B, K, steps * K]
        visible = torch.nn.functional.pad(visible, (self.prefix_length, 0), value=True)
        return additive(visible, dtype)[:, None]


class StepPositions:
    """The position of a step, which is the same for all beams, and the vector that is added there.

    Both are computed for many steps at a time: the host would wait for each number that it copies to the device, and
    sinusoids are computed in float64.

    Args:
        encoding: The decoder's position encoding.
        like: A tensor with the device and the type of embeddings.
    """

    STEPS = 64

    def __init__(self, encoding: PositionEncoding, like: torch.Tensor):
        self.encoding, self.like = encoding, like
        self.adds_vectors = type(encoding).encode is AddedPositions.encode and encoding.max_length is None
        self.first = -self.STEPS

    def __call__(self, position: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns the position [1] and, if the encoding adds one, the vector [1, D]."""
        if not self.first <= position < self.first + self.STEPS:
            self.first = position
            self.numbers = torch.arange(position, position + self.STEPS, device=self.like.device)
            self.vectors = self.encoding(self.numbers).to(self.like.dtype) if self.adds_vectors else None
        step = slice(position - self.first, position - self.first + 1)
        return self.numbers[step], None if self.vectors is None else self.vectors[step]


class GrowingLayer(DynamicLayer):
    """Keys and values [B, H, T, d] with room to grow, so that a new token does not copy the earlier ones."""

    keys: torch.Tensor
    values: torch.Tensor

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if start == 0:
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            self.room = [with_room(states, 2 * end + 32) for states in (key_states, value_states)]
        elif end > self.room[0].shape[-2]:
            self.room = [with_room(states, 2 * end) for states in (self.keys, self.values)]
        for room, states in zip(self.room, (key_states, value_states), strict=True):
            room[:, :, start:end] = states
        self.keys, self.values = (room[:, :, :end] for room in self.room)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.room = [with_room(states[indices], states.shape[-2] + 64) for states in (self.keys, self.values)]
        self.keys, self.values = (room[:, :, : self.keys.shape[-2]] for room in self.room)


def with_room(states: torch.Tensor, length: int) -> torch.Tensor:
    """Copies states [..., T, d] into a tensor with room for more."""
    room = states.new_empty(*states.shape[:-2], length, states.shape[-1])
    room[..., : states.shape[-2], :] = states
    return room
