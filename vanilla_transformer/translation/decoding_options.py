"""The options of a search: those given, else those of the model's `generation_config`, else the search's defaults."""

from typing import Any

from vanilla_transformer.models import beam_search
from vanilla_transformer.models import mask_predict_search as mask_predict
from vanilla_transformer.models.beam_search import DEFAULT_EXTRA_TOKENS

from .searches import defaults_of, is_search_option, search_of


PAPER_DECODING = beam_search.DEFAULTS  # section 6.1


def with_defaults(model: Any, **given: Any) -> dict[str, Any]:
    """Returns the given options with those of the model's search filled in, such as beam size and length penalty.

    Args:
        model: A model, or the object that a backend has in its place. Its `generation_config` takes the place of
            options that are not given.
        given: Options of the search and of `generate`. `None` for one of the search means that it is not given.
    """
    options = {name: value for name, value in given.items() if value is not None or not is_search_option(name)}
    for name, default in defaults_of(search_of(model)).items():
        if name not in options:
            models_value = getattr(model.generation_config, name, None)
            options[name] = default if models_value is None else models_value
    return options


def search_options(model: Any, **given: Any) -> dict[str, Any]:
    """Returns the same as arguments of `generate(custom_generate=...)` with the model's search.

    Args:
        model: As above.
        given: Options of `generate`.
    """
    options = {**with_defaults(model, **given), "do_sample": False}
    if options.get("num_beams") == 1:
        # A greedy search needs the penalty for its scores, but the library warns about one. `alpha` is a second name
        # that the library does not check.
        options |= {"alpha": options["length_penalty"], "length_penalty": 1.0}
    return options


def sampling_options(**given: Any) -> dict[str, Any]:
    """Returns arguments of `generate` that draw translations at random.

    Args:
        given: Options of `generate`. Samples are drawn without a beam unless `num_beams` is given.
    """
    options = {**given, "do_sample": True, "num_beams": given.get("num_beams") or 1}
    if options["num_beams"] == 1:
        options["length_penalty"] = 1.0  # it has no effect, and the library warns about any other value
    return options


def max_output_length(
    source_length: int,
    prefix_length: int = 1,
    *,
    longest_sequence: int | None = None,
    max_extra_tokens: int = DEFAULT_EXTRA_TOKENS,
) -> int:
    """Returns `max_length` for `generate`: so many tokens more than the source, or as many as the model has positions.

    Args:
        source_length: Tokens of the longest source of a batch.
        prefix_length: Tokens that every translation starts with, the decoder's first token included.
        longest_sequence: Positions of the model; `None` if there is no limit.
        max_extra_tokens: How many tokens longer than its source a translation may be.
    """
    length = prefix_length + source_length + max_extra_tokens
    return length if longest_sequence is None else min(length, longest_sequence)


def set_decoding(model: Any, **given: Any) -> None:
    """Writes the options of a model's search into its `generation_config`.

    Args:
        model: The model whose `generation_config` changes.
        given: Options that take the place of its own.
    """
    options = with_defaults(model, **given)
    if options.get("num_beams") == 1:
        options["length_penalty"] = None  # the library refuses to save a penalty beside one beam
    for name, value in options.items():
        setattr(model.generation_config, name, value)


def require_decoding(
    num_beams: int | None = None,
    length_penalty: float | None = None,
    max_extra_tokens: int | None = None,
    iterations: int | None = None,
    length_candidates: int | None = None,
    length_ratio: float | None = None,
    length_alpha: float | None = None,
) -> None:
    """Refuses values that no search can use."""
    mask_predict.require_options(iterations, length_candidates, length_ratio, length_alpha)
    if num_beams is not None and (not isinstance(num_beams, int) or isinstance(num_beams, bool) or num_beams < 1):
        raise ValueError(f"num_beams={num_beams!r} must be a whole number of 1 (greedy) or more.")
    if length_penalty is not None and not (isinstance(length_penalty, int | float) and abs(length_penalty) <= 10):
        raise ValueError(f"length_penalty={length_penalty!r} must lie between -10 and 10; the paper's is 0.6.")
    if max_extra_tokens is not None and not (isinstance(max_extra_tokens, int) and max_extra_tokens >= 0):
        raise ValueError(f"max_extra_tokens={max_extra_tokens!r} must be a whole number of 0 or more.")


# Options of `generate` that no search here has: their neutral values, and what to do instead.
REFUSED = {
    "force_words_ids": ((None,), "give glossary={source term: target term}"),
    "constraints": ((None,), "give glossary={source term: target term}"),
    "num_beam_groups": ((None, 1), "for different translations set n_best, or sample=True"),
    "diversity_penalty": ((None, 0.0), "for different translations set n_best, or sample=True"),
    "penalty_alpha": ((None, 0.0), "contrastive search does not exist for encoder-decoders"),
    "dola_layers": ((None,), "it does not exist for encoder-decoders"),
    "assistant_model": ((None,), "leave it out"),
    "prompt_lookup_num_tokens": ((None,), "leave it out"),
}
ONLY_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")


def require_known_decoding(config: Any, given: dict[str, Any], *, sample: bool) -> None:
    """Refuses options that would have no effect.

    Args:
        config: The model's `generation_config`.
        given: Options of `generate`.
        sample: Whether translations are sampled.
    """
    for name, (neutral, advice) in REFUSED.items():
        for value, where in (
            (given.get(name), ""),
            (getattr(config, name, None), " in the model's generation_config"),
        ):
            if value not in neutral:
                raise ValueError(f"{name}={value!r:.60}{where} is not supported: {advice}.")
    for name in ONLY_SAMPLING:
        if given.get(name) is not None and not sample:
            raise ValueError(f"{name}={given[name]!r} is for sampling and does nothing in a search: set sample=True.")
