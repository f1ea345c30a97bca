"""Mask-Predict (Ghazvininejad et al. 2019): all tokens of a translation at once, then the least certain ones again.

    model.generate(**batch, iterations=4, length_candidates=5, length_ratio=1.0)

The length predictor proposes `length_candidates` lengths for each sentence. Each candidate starts as N masks.
Iteration t of T (t = 0, 1 ...) masks the n = N (T - t) / T tokens of the lowest probability, rounded down, and
predicts them again; the others keep their token and its probability. After the last iteration, the candidate with the
highest mean log-probability of its tokens wins.

`length_ratio` multiplies the lengths that the predictor proposes: 0.8 asks for shorter translations, 1.2 for longer.
`length_alpha` changes who wins: candidates are ranked by log-probability / length^length_alpha. 1 is the mean, which
prefers short candidates; more is kinder to long ones.

Shapes: B sentences, K length candidates, R = B * K rows, T positions, V vocabulary, D d_model.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, NamedTuple

import torch
from transformers import GenerationMixin, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation import (
    EosTokenCriteria,
    GenerateBeamEncoderDecoderOutput,
    GenerationConfig,
    MaxLengthCriteria,
)

from .decoder_steps import FASTER_PASSES
from .devices import places_of
from .mask_predict_options import MaskPredictOptions
from .search_options import SEARCH, stored_options


# Options of `generate` that choose one token after another. Here no token has a next one.
LEFT_TO_RIGHT_OPTIONS = (
    *("num_beams", "length_penalty", "early_stopping", "do_sample", "temperature", "top_k", "top_p", "min_p"),
    *("typical_p", "epsilon_cutoff", "eta_cutoff", "top_h", "repetition_penalty", "encoder_repetition_penalty"),
    *("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids", "sequence_bias", "guidance_scale"),
    *("suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id"),
    *("exponential_decay_length_penalty", "min_new_tokens", "min_length", "stop_strings", "max_time"),
    *("watermarking_config", "prompt_lookup_num_tokens", "token_healing", "remove_invalid_values"),
    *("renormalize_logits", "output_scores", "output_logits", "output_attentions", "output_hidden_states"),
)
LEFT_TO_RIGHT_ARGUMENTS = (
    *("streamer", "assistant_model", "synced_gpus", "prefix_allowed_tokens_fn", "negative_prompt_ids"),
)


class Iteration(NamedTuple):
    """The state of all rows after one iteration.

    Args:
        tokens: The tokens [R, T], `</s>` and padding at the end.
        masked: Which of them this iteration predicted [R, T]; the others are from earlier ones.
        log_probabilities: Their log-probabilities when they were predicted [R, T]; 0 for `</s>` and padding.
    """

    tokens: torch.Tensor
    masked: torch.Tensor
    log_probabilities: torch.Tensor


@torch.no_grad()
def search(
    model: PreTrainedModel,
    input_ids: torch.LongTensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    *,
    options: MaskPredictOptions | None = None,
    num_hypotheses: int = 1,
    history: list[Iteration] | None = None,
    **model_kwargs: Any,
) -> torch.LongTensor | GenerateBeamEncoderDecoderOutput:
    """The decoding loop of [`MaskPredictForConditionalGeneration`]; its `generate` calls this.

    Args:
        model: The model.
        input_ids: The first token of each translation [B, 1]; `generate` makes it.
        logits_processor: Must be empty.
        stopping_criteria: May have the length limit only.
        generation_config: `max_length` or `max_new_tokens`, `return_dict_in_generate`, and the fields of
            `MaskPredictOptions`.
        options: All options of the search, in place of those in `generation_config`.
        num_hypotheses: Number of translations of each sentence, best first: `num_return_sequences` of `generate`.
        history: A list that receives all iterations of the returned translations.
        model_kwargs: What `generate` prepared for the model: the encoder's output and the source's mask.

    Returns:
        The translations. Their score is log-probability / length^length_alpha, by default the mean log-probability of
        their tokens.
    """
    _require_all_at_once(generation_config, logits_processor, stopping_criteria, input_ids)
    options = options or MaskPredictOptions(**stored_options(generation_config, MaskPredictOptions))
    if num_hypotheses > (most := options.length_candidates):
        raise ValueError(f"num_return_sequences={num_hypotheses} is more than length_candidates={most} can find.")

    states, mask = model_kwargs["encoder_outputs"].last_hidden_state, model_kwargs.get("attention_mask")
    sources = source_lengths(states, mask)
    limits = options.longest(sources).clamp(max=generation_config.max_length - 1) - 1  # without </s>
    probabilities = model.length_predictor(states, mask).float().softmax(-1)
    lengths = candidate_lengths(
        probabilities, sources, limits.clamp(min=1), options.length_candidates, options.length_ratio
    )  # [B, K]
    if num_hypotheses > (possible := int((lengths > 0).sum(1).min())):
        raise ValueError(f"num_return_sequences={num_hypotheses}: the length limit leaves {possible} lengths to try.")
    states = states.repeat_interleave(lengths.shape[1], 0)
    mask = None if mask is None else mask.repeat_interleave(lengths.shape[1], 0)
    steps = list(refine(model, states, mask, lengths.flatten(), options.iterations))
    scores, rows = _best(lengths, steps[-1].log_probabilities, options.length_alpha, num_hypotheses)
    if history is not None:
        history += [Iteration(*(part[rows] for part in step)) for step in steps]
    longest = int(lengths.flatten()[rows].max()) + 1
    prefix = input_ids.repeat_interleave(num_hypotheses, 0)
    sequences = torch.cat([prefix, steps[-1].tokens[rows, :longest]], dim=1)
    if not generation_config.return_dict_in_generate:
        return sequences
    return GenerateBeamEncoderDecoderOutput(sequences=sequences, sequences_scores=scores)


def generate(*args: Any, model: PreTrainedModel, **kwargs: Any) -> Any:
    """`model.generate` with this search."""
    for name in LEFT_TO_RIGHT_ARGUMENTS:
        if (value := kwargs.get(name)) is not None and value is not False:
            raise _left_to_right(name)
    if kwargs.get(SEARCH, MaskPredictOptions.name) is None:
        raise _left_to_right(f"{SEARCH}=None, the library's search,")
    # The library has one name for the number of results, and allows it only beside beams or samples.
    if (number := kwargs.pop("num_return_sequences", None)) is not None:
        kwargs["num_hypotheses"] = number
    # Every iteration changes all positions: a cache would be made for nothing, whoever asks for it.
    kwargs["custom_generate"] = kwargs.get("custom_generate") or search
    return GenerationMixin.generate(model, *args, **{**kwargs, "use_cache": False})


# --- the iterations ---


class _KeepsNothing(DynamicCache):
    """A cache of self-attention that stays empty: each iteration changes the translation and its keys and values."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return key_states, value_states


def refine(
    model: PreTrainedModel,
    states: torch.Tensor,
    source_mask: torch.Tensor | None,
    lengths: torch.Tensor,
    iterations: int,
) -> Iterator[Iteration]:
    """Yields each iteration over rows of given lengths. It ends early when there is nothing left to mask.

    Args:
        model: The model.
        states: The encoder's output for each row [R, S, D].
        source_mask: 1 for tokens of the source and 0 for padding [R, S]; `None` for no padding.
        lengths: Tokens of each row, `</s>` not counted [R].
        iterations: Number of iterations.
    """
    config = model.config
    known_lengths = lengths.tolist()  # the host waits here and then never again
    positions = torch.arange(max(known_lengths) + 1, device=lengths.device)
    is_token, is_end = positions < lengths[:, None], positions == lengths[:, None]  # [R, T]
    tokens = torch.full(is_token.shape, config.pad_token_id, device=lengths.device)
    tokens = tokens.masked_fill(is_end, config.eos_token_id)
    log_probabilities = torch.zeros(is_token.shape, device=lengths.device)
    decode = make_passes(model, states, source_mask, is_token | is_end)
    special = (config.pad_token_id, config.bos_token_id, config.eos_token_id, config.mask_token_id)
    special_ids = torch.tensor(special, device=lengths.device)
    for iteration in range(iterations):
        masked = is_token & least_probable(
            log_probabilities, is_token, lengths * (iterations - iteration) // iterations
        )
        number = sum(length * (iterations - iteration) // iterations for length in known_lengths)
        if not number:
            return
        places = places_of(masked.flatten(), number)
        logits = decode(tokens.masked_fill(masked, config.mask_token_id), places).float()  # [masked, V]
        # The length says where a translation starts and ends, so these tokens are never inside it.
        logits.index_fill_(1, special_ids, -torch.inf)
        best, predicted = logits.max(-1)
        tokens = tokens.masked_scatter(masked, predicted)
        log_probabilities = log_probabilities.masked_scatter(masked, best - logits.logsumexp(-1))
        yield Iteration(tokens, masked, log_probabilities)


def least_probable(log_probabilities: torch.Tensor, is_token: torch.Tensor, number: torch.Tensor) -> torch.Tensor:
    """Marks the `number` [R] tokens of each row with the lowest log-probabilities [R, T]; of equal ones the first."""
    ordered = log_probabilities.masked_fill(~is_token, torch.inf).argsort(dim=1, stable=True)
    return ordered.argsort(dim=1) < number[:, None]


def make_passes(
    model: PreTrainedModel, states: torch.Tensor, source_mask: torch.Tensor | None, is_token: torch.Tensor
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Returns the decoder as a function of tokens [R, T] and the N places to predict, which count from the first row
    on. It returns their logits [N, V]: others are not projected to the vocabulary.

    Args:
        model: The model.
        states: The encoder's output for each row [R, S, D].
        source_mask: 1 for tokens of the source and 0 for padding [R, S]; `None` for no padding.
        is_token: Which positions of the translations have a token [R, T].
    """
    for make_faster in FASTER_PASSES:
        if (passes := make_faster(model, states, source_mask, is_token)) is not None:
            return passes
    # The first iteration computes the keys and values of the source, and the others use them again.
    memory = EncoderDecoderCache(_KeepsNothing(), DynamicCache())

    def decode(tokens: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
        output = model.get_decoder()(
            input_ids=tokens,
            attention_mask=is_token.long(),
            encoder_hidden_states=states,
            encoder_attention_mask=source_mask,
            past_key_values=memory,
        )
        return model.get_output_embeddings()(output.last_hidden_state.flatten(0, 1)[chosen])

    return decode


# --- lengths ---


def source_lengths(states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Tokens of each source [B], `</s>` included, from the encoder's states [B, S, D] and the mask [B, S]."""
    if mask is None:
        return torch.full((len(states),), states.shape[1], device=states.device)
    return mask.sum(1).long()


def candidate_lengths(
    probabilities: torch.Tensor, sources: torch.Tensor, limits: torch.Tensor, number: int, ratio: float
) -> torch.Tensor:
    """The most probable lengths of each translation, `</s>` not counted: [B, K], each length once, best first. If a
    sentence has fewer possible lengths, the rest are 0.

    A predicted length l becomes `ratio * l`, rounded. Lengths that become the same add up their probabilities.

    Args:
        probabilities: Those of the differences -M ... M of target and source length, both with `</s>` [B, 2M + 1].
        sources: Source lengths, `</s>` included [B].
        limits: The longest allowed translation of each sentence [B].
        number: K.
        ratio: Factor on the lengths.
    """
    largest = probabilities.shape[1] // 2
    differences = torch.arange(-largest, largest + 1, device=sources.device)
    predicted = sources[:, None] + differences - 1  # [B, 2M + 1]
    exact = (predicted.cpu().double() * ratio + 0.5).floor().long()  # not every device has float64
    scaled = exact.to(limits.device).clamp(min=1).minimum(limits[:, None])
    all_lengths = torch.arange(max(int(limits.max()), number) + 1, device=sources.device)
    of_lengths = torch.zeros(len(sources), len(all_lengths), device=sources.device)
    of_lengths.scatter_add_(1, scaled, probabilities.masked_fill(predicted < 1, 0.0))
    impossible = (all_lengths == 0) | (all_lengths > limits[:, None])
    best, lengths = of_lengths.masked_fill(impossible, -1.0).topk(number, dim=1)
    return lengths.masked_fill(best < 0, 0)


def _best(
    lengths: torch.Tensor, log_probabilities: torch.Tensor, alpha: float, number: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The `number` candidates of each sentence with the highest scores, log-probability / length^alpha: the scores and
    the rows."""
    all_scores = log_probabilities.sum(1).view_as(lengths) / lengths**alpha  # [B, K]
    scores, chosen = all_scores.masked_fill(lengths == 0, -torch.inf).topk(number, dim=1)
    first_rows = torch.arange(0, lengths.numel(), lengths.shape[1], device=lengths.device)
    return scores.flatten(), (first_rows[:, None] + chosen).flatten()


# --- options ---


def _require_all_at_once(
    config: GenerationConfig,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    prefix: torch.Tensor,
) -> None:
    """Refuses, by name, what only a search from left to right can do."""
    neutral = {"num_beams": 1, "length_penalty": 1.0, **GenerationConfig._get_default_generation_params()}
    for name in LEFT_TO_RIGHT_OPTIONS:
        value = getattr(config, name, None)
        if value is not None and value is not False and value != neutral.get(name):
            raise _left_to_right(f"{name}={value!r}")
    criteria = (rule for rule in stopping_criteria if not isinstance(rule, EosTokenCriteria | MaxLengthCriteria))
    for rule in (*logits_processor, *criteria):
        raise _left_to_right(type(rule).__name__)
    if prefix.shape[1] > 1:
        raise _left_to_right(f"A prefix of {prefix.shape[1] - 1} tokens")


def _left_to_right(what: str) -> ValueError:
    return ValueError(
        f"{what} is for decoding from left to right, and this model writes all tokens at once: leave it out. The "
        f"options of mask-predict are {', '.join(option.name for option in fields(MaskPredictOptions))}."
    )
