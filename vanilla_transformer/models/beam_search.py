"""The paper's decoding (section 6.1): beam search with a length penalty, at most 50 tokens longer than the source.

    from vanilla_transformer import beam_search

    model.generate(**batch, custom_generate=beam_search.search, num_beams=4, length_penalty=0.6)

Each sentence is searched independently. The beam holds the `num_beams` most probable unfinished hypotheses. At each
step, all their continuations by one token are ranked by log-probability. Among the first `num_beams` of this ranking,
those that end the sentence are finished, with the score log-probability / penalty(length). The best `num_beams` that
do not end it are the next beam. At the length limit everything is finished. The best scores win.

The search of a sentence stops when no unfinished hypothesis can reach the results. A further token never raises a
log-probability, so no hypothesis can score more than the most probable one would at the length limit. This loses
nothing, unless a logits processor raises log-probabilities, as a positive sequence bias does.

Shapes: B sentences, K beams, P tokens of the prefix, V vocabulary. A hypothesis is [T, 2]: for each of its tokens the
id, and the beam slot of the previous step that it continues.
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers import LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.generation import (
    EosTokenCriteria,
    GenerateBeamEncoderDecoderOutput,
    GenerationConfig,
    MaxLengthCriteria,
)
from transformers.generation import logits_process as processors

from .decoder_steps import Stepper, make_stepper
from .devices import can_look, places_of
from .search_options import BeamSearchOptions, stored_options


# Processors that treat every row alike. With any other processor, finished sentences stay in the batch.
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
    options: BeamSearchOptions | None = None,
    penalty: str | None = None,
    max_extra_tokens: int | None = None,
    selection: "MostProbable | None" = None,
    stepper_of: Callable[[PreTrainedModel, int, dict[str, Any]], Stepper] = make_stepper,
    **model_kwargs: Any,
) -> torch.LongTensor | GenerateBeamEncoderDecoderOutput:
    """For `generate(custom_generate=beam_search.search)`, with any encoder-decoder of the library.

    Args:
        model: The model.
        input_ids: The decoder's prefix for each translation [B * K, P]; `generate` makes it.
        logits_processor: Changes the log-probabilities of the next token.
        stopping_criteria: What finishes a hypothesis besides the end of sentence and the length.
        generation_config: `num_beams`, `length_penalty` (alpha), `num_return_sequences`, `max_length` or
            `max_new_tokens`, `return_dict_in_generate`, `output_scores`, `output_logits`. With `early_stopping=True`
            the search of a sentence stops at its first `num_beams` finished hypotheses.
        options: All options of the search, in place of those in `generation_config` and of the next two.
        penalty: `"gnmt"`, ((5 + length) / 6)^alpha, or `"length"`, the library's length^alpha. The length counts the
            generated tokens, the end of sentence included.
        max_extra_tokens: Each translation has at most this many tokens more than its source, and never more than
            `max_length` allows.
        selection: Which continuations are kept; the most probable by default. `required_terms.py` has another.
        stepper_of: Makes what runs the model. An ensemble gives a stepper of several models.
        model_kwargs: What `generate` prepared for the model, such as the encoder's output.
    """
    if options is None:
        given = {"penalty": penalty, "max_extra_tokens": max_extra_tokens}
        given = {name: value for name, value in given.items() if value is not None}
        options = BeamSearchOptions(**{**stored_options(generation_config, BeamSearchOptions), **given})
    _require_supported(generation_config)
    beams, wanted = generation_config.num_beams, generation_config.num_return_sequences
    prefix = input_ids[::beams]  # `generate` repeats everything for each beam
    limits = _limits(prefix, model_kwargs, options, generation_config.max_length)  # [B]
    selection = selection or MostProbable()
    rules = Rules(generation_config, logits_processor, stopping_criteria, selection.ranks_by_logits)
    last_steps = sorted(set(limits.tolist()))  # known to the host from here on
    finished = Finished(prefix, beams, last_steps[-1], generation_config, options)
    trace = Trace(generation_config)
    selection.start(prefix, rules)
    stepper = stepper_of(model, beams, model_kwargs)
    can_drop = stepper.can_drop and rules.treat_rows_alike and not trace.is_wanted

    sentences = torch.arange(len(prefix), device=prefix.device)  # the sentences in the batch
    is_open = torch.ones_like(sentences, dtype=torch.bool)  # whether their search continues
    hypotheses = torch.stack([prefix, torch.zeros_like(prefix)], dim=-1)[:, None]  # [B, 1, P, 2], later [B, K, T, 2]
    totals = torch.zeros(len(prefix), 1, device=prefix.device)  # their log-probabilities
    logits = stepper.start(prefix)  # [B, 1, V]
    for step in range(1, last_steps[-1] + 1):
        at_limit = limits[sentences] == step
        forces_end = step in last_steps
        log_probabilities = rules.log_probabilities(logits, hypotheses[..., 0], at_limit if forces_end else None)
        trace.record(logits, log_probabilities, beams)
        totals, origins, tokens = selection.continuations(log_probabilities, totals, at_limit)
        hypotheses = torch.cat([_pick(hypotheses, origins), torch.stack([tokens, origins], -1)[:, :, None]], dim=2)

        ended = rules.ended(hypotheses[..., 0], at_limit)
        new = ended[:, :beams] & is_open[:, None] & torch.isfinite(totals[:, :beams])
        finished.add(sentences, hypotheses[:, :beams], totals[:, :beams], new, step)
        totals, chosen = selection.next_beam(totals.masked_fill(ended, -torch.inf))
        hypotheses = _pick(hypotheses, chosen)

        is_open = is_open & ~at_limit & finished.can_improve(sentences, totals[:, 0], step + 1, limits, wanted)
        number_open = int(is_open.sum())  # all that the host reads at a step
        if not number_open:
            break
        if can_drop and (len(is_open) - number_open) * 8 >= len(is_open):  # dropping copies the rest: not for each
            kept = places_of(is_open, number_open)
            stepper.keep(kept)
            selection.keep(kept)
            sentences, is_open, hypotheses, totals = (part[kept] for part in (sentences, is_open, hypotheses, totals))
        logits = stepper.step(hypotheses)  # [B, K, V]
    return finished.output(wanted, trace)


# --- the search ---


class Rules:
    """What may come next and what ends a hypothesis, beside the model.

    Args:
        config: `num_beams`, the end of sentence and `forced_eos_token_id`.
        logits_processor: All processors that `generate` prepared.
        stopping_criteria: All criteria that `generate` prepared.
        can_rank_by_logits: Whether continuations of one hypothesis may be ranked by other numbers in the same order.
    """

    def __init__(
        self,
        config: GenerationConfig,
        logits_processor: LogitsProcessorList,
        stopping_criteria: StoppingCriteriaList,
        can_rank_by_logits: bool = False,
    ):
        self.beams, self.end = config.num_beams, config._eos_token_tensor
        # The library would force the end at one length for all sentences. Here each sentence has its own limit.
        self.forced_end = config.forced_eos_token_id
        self.processors = LogitsProcessorList(
            processor
            for processor in logits_processor
            if not isinstance(processor, processors.ForcedEOSTokenLogitsProcessor)
        )
        self.criteria = StoppingCriteriaList(
            criterion
            for criterion in stopping_criteria
            if not isinstance(criterion, (EosTokenCriteria, MaxLengthCriteria))
        )
        # Greedy search needs no probabilities, unless somebody asks for them.
        self.needs_probabilities = not (
            can_rank_by_logits and self.beams == 1 and not self.processors and not config.return_dict_in_generate
        )
        self.room = torch.empty(0)

    @property
    def treat_rows_alike(self) -> bool:
        """Whether a sentence's results stay the same when other sentences leave the batch."""
        return not self.criteria and all(isinstance(processor, ROW_BY_ROW) for processor in self.processors)

    @property
    def candidates(self) -> int:
        """How many continuations of a sentence to rank: `num_beams` remain if all that can end have ended. With one
        beam the search is greedy, and the best continuation is enough."""
        if self.beams == 1:
            return 1
        return self.beams * (2 if self.end is None else 1 + len(self.end))

    def log_probabilities(
        self, logits: torch.Tensor, tokens: torch.Tensor, at_limit: torch.Tensor | None
    ) -> torch.Tensor:
        """Log-probabilities [B, K, V] of the next token after hypotheses [B, K, T], under all processors. `at_limit`
        marks sentences that end here, `None` for none. The next call may overwrite them."""
        log_probabilities = self._log_softmax(logits.float()) if self.needs_probabilities else logits.float()
        if self.processors:
            log_probabilities = self._process(tokens, log_probabilities)
        if self.forced_end is not None and at_limit is not None:
            log_probabilities = _force(log_probabilities, at_limit, self.forced_end)
        return log_probabilities

    def _log_softmax(self, logits: torch.Tensor) -> torch.Tensor:
        """Writes to the same memory at each step: new memory costs more than the computation."""
        if self.room.shape != logits.shape:
            self.room = torch.empty_like(logits)
        return torch.log_softmax(logits, -1, out=self.room)

    def _process(self, tokens: torch.Tensor, log_probabilities: torch.Tensor) -> torch.Tensor:
        """Processors expect K rows for each sentence. At the first step there is only one: it is repeated."""
        rows = (part.expand(-1, self.beams, -1).flatten(0, 1) for part in (tokens, log_probabilities))
        processed = self.processors(*rows)
        return processed.unflatten(0, (-1, self.beams))[:, : log_probabilities.shape[1]]

    def ended(self, tokens: torch.Tensor, at_limit: torch.Tensor) -> torch.Tensor:
        """Which hypotheses with these tokens [B, N, T] are finished [B, N]: at the sentence's limit, by an end of
        sentence, or by another criterion."""
        ended = at_limit[:, None].expand(tokens.shape[:2])
        if self.end is not None:
            ended = ended | torch.isin(tokens[..., -1], self.end)
        if self.criteria:
            ended = ended | self.criteria(tokens.flatten(0, 1), None).view_as(ended)
        return ended


class MostProbable:
    """Chooses which continuations of the hypotheses to keep: the most probable.

    `ranks_by_logits` says that with one hypothesis the logits lead to the same choice as their probabilities.
    """

    ranks_by_logits = True

    def start(self, prefix: torch.Tensor, rules: Rules) -> None:
        """Begins the search of sentences whose translations start with `prefix` [B, P]."""
        self.rules = rules

    def continuations(
        self, log_probabilities: torch.Tensor, totals: torch.Tensor, at_limit: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns candidates by rank: total log-probability, hypothesis and token, each [B, N]. Those of the first K
        that end are finished.

        Args:
            log_probabilities: Of the next token after each hypothesis [B, K, V].
            totals: Log-probabilities of the hypotheses [B, K].
            at_limit: Sentences [B] whose hypotheses all end here.
        """
        return _best_continuations(log_probabilities, totals, self.rules.candidates)

    def next_beam(self, totals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the K best of the candidates, best first: their totals and indices. Ended ones have -inf."""
        return totals.topk(self.rules.beams, dim=-1)

    def keep(self, sentences: torch.Tensor) -> None:
        """Drops all other sentences from the batch."""


def _force(log_probabilities: torch.Tensor, where: torch.Tensor, tokens: int | list[int]) -> torch.Tensor:
    """Makes these tokens certain in the marked sentences [B]."""
    forced = torch.full_like(log_probabilities[:1], -torch.inf)
    forced[..., tokens] = 0.0
    return torch.where(where[:, None, None], forced, log_probabilities)


def _best_continuations(
    log_probabilities: torch.Tensor, totals: torch.Tensor, number: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The best continuations of the K hypotheses of each sentence: total log-probability, hypothesis and token, each
    [B, number]. If there are fewer, impossible ones fill the rest."""
    beams, vocab_size = log_probabilities.shape[1:]
    best, places = _top(log_probabilities, totals, min(number, beams * vocab_size))
    missing = (0, number - best.shape[1])
    best, places = torch.nn.functional.pad(best, missing, value=-torch.inf), torch.nn.functional.pad(places, missing)
    return best, places // vocab_size, places % vocab_size


def _top(values: torch.Tensor, added: torch.Tensor, number: int, group: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """`(values + added[..., None]).flatten(1).topk(number)` of values [B, K, V], several times faster: the best
    `number` values are in the `number` groups with the best maxima."""
    rows, length = values.shape[1:]
    groups = length // group  # of a row; what remains is the rest
    if rows * groups <= 4 * number:
        return (values + added[..., None]).flatten(1).topk(number, dim=1)
    maxima = values[..., : groups * group].unflatten(-1, (groups, group)).amax(-1) + added[..., None]
    chosen = maxima.flatten(1).topk(number, dim=1).indices  # [B, number]
    row = chosen // groups
    starts = row * length + chosen % groups * group
    members = starts[..., None] + torch.arange(group, device=values.device)  # [B, number, group]
    inside = values.flatten(1).gather(1, members.flatten(1)) + added.gather(1, row).repeat_interleave(group, dim=1)
    rest = (values[..., groups * group :] + added[..., None]).flatten(1)
    places = torch.arange(rows * length, device=values.device).view(rows, length)[:, groups * group :].flatten()
    best, indices = torch.cat([inside, rest], dim=1).topk(number, dim=1)
    return best, torch.cat([members.flatten(1), places.expand(len(values), -1)], dim=1).gather(1, indices)


def _pick(hypotheses: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Selects the hypotheses [B, K, T, 2] with the indices `chosen` [B, N] of each sentence."""
    if hypotheses.shape[1] == chosen.shape[1] == 1:
        return hypotheses
    return hypotheses[torch.arange(len(chosen), device=chosen.device)[:, None], chosen]


class Finished:
    """The best finished hypotheses of each sentence, as many as there are beams, best first."""

    def __init__(
        self, prefix: torch.Tensor, beams: int, longest: int, config: GenerationConfig, options: BeamSearchOptions
    ):
        self.config, self.options, self.prefix_length = config, options, prefix.shape[1]
        length = self.prefix_length + longest
        self.hypotheses = torch.zeros(len(prefix), beams, length, 2, dtype=torch.long, device=prefix.device)
        self.lengths = torch.zeros(len(prefix), beams, dtype=torch.long, device=prefix.device)
        self.scores = torch.full((len(prefix), beams), -torch.inf, device=prefix.device)

    def add(
        self, sentences: torch.Tensor, hypotheses: torch.Tensor, totals: torch.Tensor, new: torch.Tensor, step: int
    ) -> None:
        """Adds those hypotheses [B, K, T, 2] that are marked `new` [B, K], if they are good enough."""
        if can_look(new):  # this saves work
            some = new.any(1)
            if not some.any():
                return
            sentences, hypotheses, totals, new = (part[some] for part in (sentences, hypotheses, totals, new))
        scores = self.options.score(totals, step).masked_fill(~new, -torch.inf)
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
        """Whether a beam can still change the results, if its best hypothesis has the log-probability `best`."""
        if self.config.early_stopping is True or self.scores.shape[1] == 1:  # one beam: greedy search
            return ~torch.isfinite(self.scores[sentences, -1])
        grows = self.options.length_penalty > 0
        length = limits[sentences] if grows else torch.full_like(sentences, next_length)
        return self.options.score(best, length) > self.scores[sentences, wanted - 1]

    def output(self, wanted: int, trace: "Trace") -> torch.LongTensor | GenerateBeamEncoderDecoderOutput:
        """The results in the form of `generate`: one row for each, the best of a sentence first."""
        lengths = self.lengths[:, :wanted].flatten()
        hypotheses = self.hypotheses[:, :wanted, : lengths.max()].flatten(0, 1)  # [B * wanted, T, 2]
        is_padding = torch.arange(hypotheses.shape[1], device=lengths.device) >= lengths[:, None]
        sequences = hypotheses[..., 0].masked_fill(is_padding, self._padding())
        if not self.config.return_dict_in_generate:
            return sequences
        beams = self.scores.shape[1]
        rows = torch.arange(len(self.scores), device=lengths.device).repeat_interleave(wanted) * beams
        rows = (hypotheses[..., 1] + rows[:, None]).masked_fill(is_padding, -1)[:, self.prefix_length :]
        return GenerateBeamEncoderDecoderOutput(
            sequences=sequences,
            sequences_scores=self.scores[:, :wanted].flatten(),
            scores=tuple(trace.scores) if self.config.output_scores else None,
            logits=tuple(trace.logits) if self.config.output_logits else None,
            beam_indices=rows,
        )

    def _padding(self) -> int:
        for tensor in (self.config._pad_token_tensor, self.config._eos_token_tensor):
            if tensor is not None:
                return int(tensor.flatten()[0])
        return 0


class Trace:
    """Scores and logits of each step [B * K, V], for `output_scores` and `output_logits`."""

    def __init__(self, config: GenerationConfig):
        self.config = config
        self.is_wanted = config.return_dict_in_generate and (config.output_scores or config.output_logits)
        self.scores: list[torch.Tensor] = []
        self.logits: list[torch.Tensor] = []

    def record(self, logits: torch.Tensor, log_probabilities: torch.Tensor, beams: int) -> None:
        if not self.is_wanted:
            return
        for record, tensor in ((self.scores, log_probabilities), (self.logits, logits)):
            record.append(tensor.expand(-1, beams, -1).flatten(0, 1).clone())


# --- arguments ---


def _limits(prefix: torch.Tensor, model_kwargs: dict, options: BeamSearchOptions, max_length: int) -> torch.Tensor:
    """The most tokens that may be generated for each sentence [B]."""
    encoded, mask = model_kwargs["encoder_outputs"].last_hidden_state, model_kwargs.get("attention_mask")
    ones = torch.ones(encoded.shape[:2], dtype=torch.long, device=encoded.device)
    sources = (ones if mask is None else mask).sum(1).view(len(prefix), -1)[:, 0]
    return options.longest(sources).clamp(min=1, max=max(max_length - prefix.shape[1], 1))


def _require_supported(config: GenerationConfig) -> None:
    if config.do_sample:
        raise ValueError("This beam search does not sample: leave out either do_sample or custom_generate.")
    if config.num_return_sequences > config.num_beams:
        raise ValueError(
            f"num_return_sequences={config.num_return_sequences} is more than num_beams={config.num_beams} can find."
        )
    for name in ("output_attentions", "output_hidden_states"):
        if config.return_dict_in_generate and getattr(config, name):
            raise ValueError(
                f"This beam search does not support {name}: pass the finished translation to the model with "
                f"{name}=True, which returns everything at once."
            )
