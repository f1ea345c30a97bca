"""How a model is decoded where nobody says otherwise: by its own settings, and by the paper's where it has none."""

from typing import Any


PAPER_DECODING = {"num_beams": 4, "length_penalty": 0.6}  # section 6.1


def decoding_options(config, **asked) -> dict[str, Any]:
    """How to decode: as asked, else as the model's `generation_config` says, else as in the paper. A beam or a penalty
    of `None` asks for nothing."""
    for name, papers in PAPER_DECODING.items():
        if asked.get(name) is None:
            own = getattr(config, name)
            asked[name] = papers if own is None else own
    return asked


def search_options(config, **asked) -> dict[str, Any]:
    """The same as arguments of `generate(custom_generate=beam_search.search)`."""
    options = {**decoding_options(config, **asked), "do_sample": False}
    if options["num_beams"] == 1:
        # Greedy search has no use for the penalty but in its scores, and the library warns of it.
        options |= {"alpha": options["length_penalty"], "length_penalty": 1.0}
    return options


def set_decoding(config, **asked) -> None:
    """Writes into a model's `generation_config` how it is to be decoded."""
    options = decoding_options(config, **asked)
    if options["num_beams"] == 1:
        options["length_penalty"] = None  # with which the library would not save it
    config.update(**options)


def require_decoding(
    num_beams: int | None = None, length_penalty: float | None = None, max_extra_tokens: int | None = None
) -> None:
    """Refuses numbers that no search can take."""
    if num_beams is not None and (not isinstance(num_beams, int) or isinstance(num_beams, bool) or num_beams < 1):
        raise ValueError(f"num_beams={num_beams!r} must be a whole number of 1 (greedy) or more.")
    if length_penalty is not None and not (isinstance(length_penalty, int | float) and abs(length_penalty) <= 10):
        raise ValueError(f"length_penalty={length_penalty!r} must lie between -10 and 10; the paper's is 0.6.")
    if max_extra_tokens is not None and not (isinstance(max_extra_tokens, int) and max_extra_tokens >= 0):
        raise ValueError(f"max_extra_tokens={max_extra_tokens!r} must be a whole number of 0 or more.")
