"""The paper's decoding (section 6.1): beam search with a length penalty, at most 50 tokens longer than the source,
ended early when nothing better can come.

    from vanilla_transformer import beam_search

    model.generate(**batch, custom_generate=beam_search.search, num_beams=4, length_penalty=0.6)

The search, for each sentence alone: a beam holds the `num_beams` likeliest unfinished translations. At each step all
their continuations by one token are ranked by log-probability. Of the first `num_beams` in that ranking, those that
end the sentence are finished, and their score is log-probability / penalty(length); the best `num_beams` that do not
end it are the next beam. At the longest allowed length everything is finished. The best scores win.

It stops when no unfinished translation can enter the results any more: tokens only take away from a log-probability,
so none can score more than the likeliest of the beam would at the longest length. That loses nothing. (Unless a logits
processor adds to log-probabilities, as a positive sequence bias does.)

Shapes: B sentences, K beams, P tokens of the given beginning, V vocabulary. A hypothesis is [T, 2]: for each of its
tokens its id, and which beam of the step before it came from.
"""

import math

import torch
from transformers import LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation import (
    EosTokenCriteria,
    GenerateBeamEncoderDecoderOutput,
    GenerationConfig,
    MaxLengthCriteria,
)
from transformers.generation import logits_process as processors
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask


# Section 6.1: the output is at most this much longer than the input.
DEFAULT_EXTRA_TOKENS = 50
PENALTIES = {
    # Wu et al. 2016, "Google's Neural Machine Translation System", equation 14; the paper's.
    "gnmt": lambda length: (5 + length) / 6,
    # What `generate` itself divides by.
    "length": lambda length: 1.0 * length,
}
# Processors that look at one row at a time and not at its number: with others, finished sentences stay in the batch.
ROW_BY_ROW = (
    processors.ForcedBOSTokenLogitsProcessor,
    processors.InfNanRemoveLogitsProcessor,
    processors.LogitNormalization,
    processors.MinLengthLogitsProcessor,
    processors.MinNewTokensLengthLogitsProcessor,
    processors.NoBadWordsLogitsProcessor,
    processors.NoRepeatNGramLogitsProcessor,
    processors.RepetitionPenaltyLogitsProcessor,
    processors.SequenceBiasLogitsProcessor,
    processors.SuppressTokensAtBeginLogitsProcessor,
    processors.SuppressTokensLogitsProcessor,
)


@torch.no_grad()
def search(
    model: PreTrainedModel,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    max_extra_tokens: int = DEFAULT_EXTRA_TOKENS,
    penalty: str = "gnmt",
    alpha: float | None = None,
    **model_kwargs,
) -> torch.LongTensor | GenerateBeamEncoderDecoderOutput:
    """For `generate(custom_generate=beam_search.search)`, of this model or any encoder-decoder of the library.

    Args:
        model: The model.
        input_ids: The given beginning of each translation [B * K, P]; `generate` makes it.
        logits_processor: Change the log-probabilities of the next token.
        stopping_criteria: Besides the end of sentence and the length, what finishes a translation.
        generation_config: `num_beams`, `length_penalty` (alpha), `num_return_sequences`, `max_length` or
            `max_new_tokens`, `return_dict_in_generate`, `output_scores`, `output_logits`. With `early_stopping=True`
            a sentence ends at its first `num_beams` finished translations.
        max_extra_tokens: Each translation has at most so many tokens more than its source, and never more than
            `max_length` allows.
        penalty: `"gnmt"`, ((5 + length) / 6)^alpha, or `"length"`, the library's length^alpha. The length is that of
            the generated tokens, with the end of sentence.
        alpha: In place of `length_penalty`, which the library does not like to see beside a beam of one.
        model_kwargs: What `generate` prepared for the model: the encoder's output among it.
    """
    alpha = generation_config.length_penalty if alpha is None else alpha
    _require_supported(generation_config, penalty, alpha, max_extra_tokens)
    beams, wanted = generation_config.num_beams, generation_config.num_return_sequences
    prefix = input_ids[::beams]  # `generate` repeats everything for each beam
    limits = _limits(prefix, model_kwargs, max_extra_tokens, generation_config.max_length)  # [B]
    longest = int(limits.max())
    end = generation_config._eos_token_tensor
    others = StoppingCriteriaList(
        each for each in stopping_criteria if not isinstance(each, (EosTokenCriteria, MaxLengthCriteria))
    )
    # Which the library would force at one length for all sentences.
    forced_end = generation_config.forced_eos_token_id
    logits_processor = LogitsProcessorList(
        each for each in logits_processor if not isinstance(each, processors.ForcedEOSTokenLogitsProcessor)
    )
    finished = Finished(prefix, beams, longest, generation_config, penalty, alpha)
    trace = Trace(generation_config)
    decoder = make_decoder(model, beams, model_kwargs)
    can_drop = (
        decoder.can_drop
        and not trace.is_wanted
        and not others
        and all(isinstance(each, ROW_BY_ROW) for each in logits_processor)
    )

    sentences = torch.arange(len(prefix), device=prefix.device)  # those still in the batch
    is_open = torch.ones_like(sentences, dtype=torch.bool)  # those among them that are searched on
    hypotheses = torch.stack([prefix, torch.zeros_like(prefix)], dim=-1)[:, None]  # [B, 1, P, 2], later K of them
    totals = torch.zeros(len(prefix), 1, device=prefix.device)  # their log-probabilities
    logits = decoder.start(prefix)  # [B, 1, V]
    for step in range(1, longest + 1):
        log_probabilities = logits.float().log_softmax(-1)
        if logits_processor:
            log_probabilities = _process(logits_processor, hypotheses[..., 0], log_probabilities, beams)
        at_limit = limits[sentences] == step
        if forced_end is not None and at_limit.any():
            log_probabilities = _force(log_probabilities, at_limit, forced_end)
        trace.record(logits, log_probabilities, beams)

        # So many that `beams` are left when those that can end have ended. A beam of one is greedy: its best ends it.
        number = beams * (2 if end is None else 1 + len(end)) if beams > 1 else 1
        totals, origins, tokens = _best_continuations(log_probabilities, totals, number)
        hypotheses = torch.cat([_pick(hypotheses, origins), torch.stack([tokens, origins], -1)[:, :, None]], dim=2)
        ended = _have_ended(hypotheses[..., 0], at_limit, end, others)
        new = ended[:, :beams] & is_open[:, None] & torch.isfinite(totals[:, :beams])
        if new.any():
            finished.add(sentences, hypotheses[:, :beams], totals[:, :beams], new, step)
        totals, chosen = totals.masked_fill(ended, -torch.inf).topk(beams, dim=-1)
        hypotheses = _pick(hypotheses, chosen)

        is_open = is_open & ~at_limit & finished.can_improve(sentences, totals[:, 0], step + 1, limits, wanted)
        if not is_open.any():
            break
        if can_drop and (~is_open).sum() * 8 >= len(is_open):  # dropping copies what stays: not for every single one
            kept = is_open.nonzero().squeeze(1)
            decoder.keep(kept)
            sentences, is_open, hypotheses, totals = (part[kept] for part in (sentences, is_open, hypotheses, totals))
        logits = decoder.step(hypotheses)  # [B, K, V]
    return finished.output(wanted, trace)


# What this search has no part in.
LEFT_TO_THE_LIBRARY = (
    *("do_sample", "assistant_model", "prompt_lookup_num_tokens", "streamer", "custom_generate"),
    *("output_attentions", "output_hidden_states", "stop_strings"),
)


def generate(*args, model: PreTrainedModel, **kwargs):
    """`model.generate` with this search wherever it can take the library's place.

    A repository that has this file as `custom_generate/generate.py` decodes so by itself.
    """
    config = kwargs.get("generation_config") or model.generation_config
    if not any(kwargs.get(name, getattr(config, name, None)) for name in LEFT_TO_THE_LIBRARY):
        kwargs["custom_generate"] = search
    return type(model).generate(model, *args, **kwargs)


# --- the search ---


def _process(
    processor: LogitsProcessorList, tokens: torch.Tensor, log_probabilities: torch.Tensor, beams: int
) -> torch.Tensor:
    """What the processors make of log-probabilities [B, K, V]. They count on K rows for each sentence, which at first
    has one."""
    rows = processor(*(part.expand(-1, beams, -1).flatten(0, 1) for part in (tokens, log_probabilities)))
    return rows.unflatten(0, (-1, beams))[:, : log_probabilities.shape[1]]


def _force(log_probabilities: torch.Tensor, where: torch.Tensor, tokens: int | list[int]) -> torch.Tensor:
    """In the sentences marked [B] nothing but these tokens is possible, and they are certain."""
    forced = torch.full_like(log_probabilities[:1], -torch.inf)
    forced[..., tokens] = 0.0
    return torch.where(where[:, None, None], forced, log_probabilities)


def _best_continuations(
    log_probabilities: torch.Tensor, totals: torch.Tensor, number: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The best continuations of K hypotheses over all [B, K, V]: log-probability, hypothesis and token, each
    [B, number]. Where there are fewer, improbable ones fill up."""
    best, tokens = _top(log_probabilities, min(number, log_probabilities.shape[-1]))  # of each hypothesis
    candidates = (best + totals[..., None]).flatten(1)
    if candidates.shape[1] < number:
        missing = (0, number - candidates.shape[1])
        candidates = torch.nn.functional.pad(candidates, missing, value=-torch.inf)
        tokens = torch.nn.functional.pad(tokens.flatten(1), missing)
    totals, chosen = candidates.topk(number, dim=1)
    origins = (chosen // best.shape[-1]).clamp(max=log_probabilities.shape[1] - 1)
    return totals, origins, tokens.flatten(1).gather(1, chosen)


def _top(values: torch.Tensor, number: int, group: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """`values.topk(number)` over a long last dimension, several times as fast: the best `number` values are in the
    `number` groups with the best maxima."""
    whole = values.shape[-1] // group * group
    if whole // group <= 4 * number:
        return values.topk(number, dim=-1)
    groups = values[..., :whole].unflatten(-1, (-1, group)).amax(-1).topk(number, dim=-1).indices
    members = (groups[..., None] * group + torch.arange(group, device=values.device)).flatten(-2)
    rest = torch.arange(whole, values.shape[-1], device=values.device).expand(*members.shape[:-1], -1)
    members = torch.cat([members, rest], dim=-1)
    best, places = values.gather(-1, members).topk(number, dim=-1)
    return best, members.gather(-1, places)


def _have_ended(
    tokens: torch.Tensor, at_limit: torch.Tensor, end: torch.Tensor | None, others: StoppingCriteriaList
) -> torch.Tensor:
    """Which of the hypotheses with these tokens [B, N, T] go no further [B, N]: at their sentence's limit, at an end
    of sentence, or by another criterion."""
    ended = at_limit[:, None].expand(tokens.shape[:2])
    if end is not None:
        ended = ended | torch.isin(tokens[..., -1], end)
    if others:
        ended = ended | others(tokens.flatten(0, 1), None).view_as(ended)
    return ended


def _pick(hypotheses: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Of the hypotheses [B, K, T, 2] those numbered `chosen` [B, N] in each sentence."""
    if hypotheses.shape[1] == chosen.shape[1] == 1:
        return hypotheses  # one of one
    return hypotheses[torch.arange(len(chosen), device=chosen.device)[:, None], chosen]


class Finished:
    """The best finished translations of each sentence, as many as there are beams, best first."""

    def __init__(
        self, prefix: torch.Tensor, beams: int, longest: int, config: GenerationConfig, penalty: str, alpha: float
    ):
        self.config, self.prefix_length = config, prefix.shape[1]
        self.alpha, self.penalty = float(alpha), PENALTIES[penalty]
        length = self.prefix_length + longest
        self.hypotheses = torch.zeros(len(prefix), beams, length, 2, dtype=torch.long, device=prefix.device)
        self.lengths = torch.zeros(len(prefix), beams, dtype=torch.long, device=prefix.device)
        self.scores = torch.full((len(prefix), beams), -torch.inf, device=prefix.device)

    def add(
        self, sentences: torch.Tensor, hypotheses: torch.Tensor, totals: torch.Tensor, new: torch.Tensor, step: int
    ) -> None:
        """Takes in the new ones among the hypotheses [B, K, T, 2], where they are good enough."""
        some = new.any(1)
        sentences, hypotheses, totals, new = (part[some] for part in (sentences, hypotheses, totals, new))
        scores = (totals / self.penalty(step) ** self.alpha).masked_fill(~new, -torch.inf)
        lengths = torch.full_like(sentences, hypotheses.shape[2])[:, None].expand_as(scores)
        room = self.hypotheses.shape[2] - hypotheses.shape[2]
        hypotheses = torch.nn.functional.pad(hypotheses, (0, 0, 0, room))
        scores, chosen = torch.cat([self.scores[sentences], scores], dim=1).topk(self.scores.shape[1], dim=1)
        self.scores[sentences] = scores
        self.lengths[sentences] = torch.cat([self.lengths[sentences], lengths], dim=1).gather(1, chosen)
        self.hypotheses[sentences] = _pick(torch.cat([self.hypotheses[sentences], hypotheses], dim=1), chosen)

    def can_improve(
        self, sentences: torch.Tensor, best: torch.Tensor, next_length: int, limits: torch.Tensor, wanted: int
    ) -> torch.Tensor:
        """Whether a beam whose likeliest hypothesis has the log-probability `best` can still change the results."""
        if self.config.early_stopping is True or self.scores.shape[1] == 1:  # a beam of one is greedy search
            return ~torch.isfinite(self.scores[sentences, -1])
        length = limits[sentences] if self.alpha > 0 else torch.full_like(sentences, next_length)
        return best / self.penalty(length) ** self.alpha > self.scores[sentences, wanted - 1]

    def output(self, wanted: int, trace: "Trace") -> torch.LongTensor | GenerateBeamEncoderDecoderOutput:
        """The results as `generate` gives them, a row for each, the best of a sentence first."""
        lengths = self.lengths[:, :wanted].flatten()
        hypotheses = self.hypotheses[:, :wanted, : lengths.max()].flatten(0, 1)  # [B * wanted, T, 2]
        places = torch.arange(hypotheses.shape[1], device=lengths.device)
        beyond = places >= lengths[:, None]
        sequences = hypotheses[..., 0].masked_fill(beyond, self._fill())
        if not self.config.return_dict_in_generate:
            return sequences
        beams = self.scores.shape[1]
        rows = torch.arange(len(self.scores), device=lengths.device).repeat_interleave(wanted) * beams
        rows = (hypotheses[..., 1] + rows[:, None]).masked_fill(beyond, -1)[:, self.prefix_length :]
        return GenerateBeamEncoderDecoderOutput(
            sequences=sequences,
            sequences_scores=self.scores[:, :wanted].flatten(),
            scores=tuple(trace.scores) if self.config.output_scores else None,
            logits=tuple(trace.logits) if self.config.output_logits else None,
            beam_indices=rows,
        )

    def _fill(self) -> int:
        for tensor in (self.config._pad_token_tensor, self.config._eos_token_tensor):
            if tensor is not None:
                return int(tensor.flatten()[0])
        return 0


class Trace:
    """What `output_scores` and `output_logits` ask to see of each step: [B * K, V]."""

    def __init__(self, config: GenerationConfig):
        self.config = config
        self.is_wanted = config.return_dict_in_generate and (config.output_scores or config.output_logits)
        self.scores: list[torch.Tensor] = []
        self.logits: list[torch.Tensor] = []

    def record(self, logits: torch.Tensor, log_probabilities: torch.Tensor, beams: int) -> None:
        if not self.is_wanted:
            return
        for kept, tensor in ((self.scores, log_probabilities), (self.logits, logits)):
            kept.append(tensor.expand(-1, beams, -1).flatten(0, 1).clone())


# --- the models ---


def make_decoder(model: PreTrainedModel, beams: int, model_kwargs: dict):
    return (VanillaDecoder if VanillaDecoder.fits(model, model_kwargs) else AnyDecoder)(model, beams, model_kwargs)


class AnyDecoder:
    """Any encoder-decoder of the library: a row of the batch is one beam of one sentence."""

    def __init__(self, model: PreTrainedModel, beams: int, model_kwargs: dict):
        self.model, self.beams, self.kwargs = model, beams, model_kwargs
        cache = model_kwargs.get("past_key_values")
        caches = [cache.self_attention_cache, cache.cross_attention_cache] if _is_pair(cache) else []
        self.can_drop = bool(caches) and all(isinstance(each, DynamicCache) for each in caches)

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
        """Gives each beam the keys and values of the one it came from. Those of the source are the same for all."""
        rows = torch.arange(origins.numel(), device=origins.device).view_as(origins)
        origin_rows = rows[:, :1] + origins
        if torch.equal(origin_rows, rows):
            return
        cache = self.kwargs["past_key_values"]
        (cache.self_attention_cache if _is_pair(cache) else cache).reorder_cache(origin_rows.flatten())


class VanillaDecoder:
    """This model: a row of the batch is a sentence, and its beams are the row's tokens.

    So the source has one copy of its states, keys and values, which all beams of the sentence look at in one product.
    Nor is anything reordered: the keys and values of all beams stay where they were written, and a mask shows each
    beam those of its own tokens.
    """

    can_drop = True

    @staticmethod
    def fits(model: PreTrainedModel, model_kwargs: dict) -> bool:
        cache = model_kwargs.get("past_key_values")
        return (
            model.config.model_type == "vanilla_transformer"
            and model.config._attn_implementation in ("eager", "sdpa")  # which take any mask
            and len(set(getattr(model, "hf_device_map", {}).values())) <= 1  # one device for all it is made of
            and bool(model_kwargs.get("use_cache"))
            and _is_pair(cache)
            and isinstance(cache.self_attention_cache, DynamicCache)
            and not cache.get_seq_length()
            and model_kwargs.get("decoder_attention_mask") is None
        )

    def __init__(self, model: PreTrainedModel, beams: int, model_kwargs: dict):
        self.lm_head, self.decoder, self.beams = model.lm_head, model.model.decoder, beams
        self.states = model_kwargs["encoder_outputs"].last_hidden_state[::beams]
        mask = model_kwargs.get("attention_mask")
        self.source_mask = create_bidirectional_mask(
            config=model.config,
            inputs_embeds=self.states[:, :1],
            attention_mask=None if mask is None else mask[::beams],
            encoder_hidden_states=self.states,
        )
        layers = len(self.decoder.layers)
        self_attention = Cache(layers=[GrowingLayer() for _ in range(layers)])
        self.cache = EncoderDecoderCache(self_attention, Cache(layers=[DynamicLayer() for _ in range(layers)]))
        self.prefix_length = 0

    def start(self, prefix: torch.Tensor) -> torch.Tensor:
        self.prefix_length = prefix.shape[1]
        states = self.decoder.embed(prefix, None)
        mask = create_causal_mask(
            config=self.decoder.config, inputs_embeds=states, attention_mask=None, past_key_values=None
        )
        return self.lm_head(self._layers(states, mask)[:, -1:])

    def step(self, hypotheses: torch.Tensor) -> torch.Tensor:
        tokens = hypotheses[:, :, -1, 0]  # [B, K]
        place = hypotheses.shape[2] - 1
        positions = self.decoder.embed_positions(1, place, tokens.device)  # of all beams the same
        states = self.decoder.embed_tokens(tokens)
        states = self.decoder.dropout(states + positions.to(states.dtype))  # [B, K, D]
        mask = self._visible(hypotheses, states.dtype) if self.beams > 1 else None  # a beam of one sees all
        return self.lm_head(self._layers(states, mask))

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences from the batch."""
        self.states = self.states[sentences]
        self.cache.self_attention_cache.batch_select_indices(sentences)
        self.cache.cross_attention_cache.batch_select_indices(sentences)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[sentences]

    def _layers(self, states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        for layer in self.decoder.layers:
            states = layer(
                states, mask, self.states, encoder_attention_mask=self.source_mask, past_key_values=self.cache
            )
        return self.decoder.norm(states)

    def _visible(self, hypotheses: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The mask [B, 1, K, P + steps * K] that shows each beam the keys of its own tokens."""
        sentences, beams = hypotheses.shape[:2]
        own = torch.arange(beams, device=hypotheses.device)
        # The beam in which a token stands is the one that the token after it came from; the last stands in its own.
        came_from = hypotheses[:, :, self.prefix_length + 1 :, 1]  # [B, K, steps - 1]
        stands_in = torch.cat([came_from, own[:, None].expand(sentences, -1, 1)], dim=-1)
        visible = (stands_in[..., None] == own).flatten(2)  # [B, K, steps * K]
        visible = torch.nn.functional.pad(visible, (self.prefix_length, 0), value=True)
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        return mask.masked_fill_(~visible, torch.finfo(dtype).min)[:, None]


class GrowingLayer(DynamicLayer):
    """Keys and values [B, H, T, d] with room to grow, so that a token more does not copy those before it."""

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        start = self.get_seq_length()
        end = start + key_states.shape[-2]
        if start == 0:
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
            self.room = [self._with_room(states, 2 * end + 32) for states in (key_states, value_states)]
        elif end > self.room[0].shape[-2]:
            self.room = [self._with_room(states, 2 * end) for states in (self.keys, self.values)]
        for room, states in zip(self.room, (key_states, value_states), strict=True):
            room[:, :, start:end] = states
        self.keys, self.values = (room[:, :, :end] for room in self.room)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        self.room = [self._with_room(states[indices], states.shape[-2] + 64) for states in (self.keys, self.values)]
        self.keys, self.values = (room[:, :, : self.keys.shape[-2]] for room in self.room)

    @staticmethod
    def _with_room(states: torch.Tensor, length: int) -> torch.Tensor:
        room = states.new_empty(*states.shape[:2], length, states.shape[-1])
        room[:, :, : states.shape[-2]] = states
        return room


# --- arguments ---


def _limits(prefix: torch.Tensor, model_kwargs: dict, max_extra_tokens: int, max_length: int) -> torch.Tensor:
    """How many tokens each sentence may get [B]."""
    encoded, mask = model_kwargs["encoder_outputs"].last_hidden_state, model_kwargs.get("attention_mask")
    ones = torch.ones(encoded.shape[:2], dtype=torch.long, device=encoded.device)
    sources = (ones if mask is None else mask).sum(1).view(len(prefix), -1)[:, 0]
    return (sources + max_extra_tokens).clamp(min=1, max=max(max_length - prefix.shape[1], 1))


def _require_supported(config: GenerationConfig, penalty: str, alpha: float, max_extra_tokens: int) -> None:
    if penalty not in PENALTIES:
        raise ValueError(f"penalty={penalty!r} is unknown: choose one of {', '.join(PENALTIES)}.")
    if max_extra_tokens < 0:
        raise ValueError(f"max_extra_tokens={max_extra_tokens} must not be negative.")
    if not (math.isfinite(alpha) and abs(alpha) <= 10):
        raise ValueError(f"length_penalty={alpha} must lie between -10 and 10; the paper's is 0.6.")
    if config.do_sample:
        raise ValueError("This beam search does not sample: leave out do_sample, or leave out custom_generate.")
    if config.num_return_sequences > config.num_beams:
        raise ValueError(
            f"num_return_sequences={config.num_return_sequences} is more than num_beams={config.num_beams} can find."
        )
    for name in ("output_attentions", "output_hidden_states"):
        if config.return_dict_in_generate and getattr(config, name):
            raise ValueError(
                f"This beam search does not keep what {name} asks for: pass the finished translation to the model "
                f"with {name}=True, which gives all of it at once."
            )


def _is_pair(cache) -> bool:
    return isinstance(cache, EncoderDecoderCache)
