"""The options of a search: one frozen dataclass with defaults, help texts and checks.

`Translator`, the engines, generation configs, the command line and the server read its fields. `searches` has all of
them.

A saved model says in its `generation_config` which search its values are meant for: `search: vanilla_beam_search`.
`generate` follows that name. A generation config without it is the library's, and so is the meaning of its
`length_penalty`.
"""

import math
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar


if TYPE_CHECKING:  # importing it imports torch, which other engines do not need
    from transformers import GenerationConfig


Length = TypeVar("Length")  # an int, or a tensor of lengths
SEARCH = "search"  # the key of a generation config that names its search
MOST = 1000  # beams, for instance: a million, in a file that someone else wrote, would take all memory
# What the library's `generate` does if a config does not say, of the options that are compared here: its trainer
# writes all of them.
LIBRARY_DEFAULTS: dict[str, Any] = {
    **{"num_beams": 1, "length_penalty": 1.0, "early_stopping": False, "num_beam_groups": 1, "diversity_penalty": 0.0},
    **{"repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "no_repeat_ngram_size": 0},
    **{"encoder_no_repeat_ngram_size": 0, "min_length": 0, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
}

PENALTIES: dict[str, Callable[[Any], Any]] = {
    # Wu et al. 2016, "Google's Neural Machine Translation System", equation 14; the paper uses this one.
    "gnmt": lambda length: (5 + length) / 6,
    # What the library's search divides by.
    "length": lambda length: 1.0 * length,
}


# --- checks ---


def option(default: Any, help: str, check: Callable[[Any], bool], must: str) -> Any:
    return field(default=default, metadata={"help": help, "check": check, "must": must})


def whole(least: int, most: int | None = None) -> tuple[Callable[[Any], bool], str]:
    return (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= (most or value),
        f"be a whole number of {least} or more" + (f", at most {most}" if most else ""),
    )


def between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and math.isfinite(value) and low <= value <= high


# --- the searches ---


@dataclass(frozen=True)
class SearchOptions:
    """Options that all searches have.

    `name` is what a generation config calls the search. `breadth` is the option that limits how many translations of
    a sentence can be returned.
    """

    name: ClassVar[str]
    breadth: ClassVar[str]

    max_extra_tokens: int = option(
        50, "Maximum number of tokens that a translation has more than its source (section 6.1).", *whole(0)
    )

    def __post_init__(self) -> None:
        for field_ in fields(self):
            require_value(field_, getattr(self, field_.name))

    @property
    def width(self) -> int:
        """How many translations of a sentence can be returned."""
        return getattr(self, self.breadth)

    def longest(self, source_length: Length) -> Length:
        """The most tokens of a translation, for a source of so many tokens."""
        return source_length + self.max_extra_tokens  # type: ignore[operator, return-value]

    def max_length(self, source_length: int, prefix_length: int = 1, positions: int | None = None) -> int:
        """`max_length` of `generate` for the longest source of a batch.

        Args:
            source_length: Tokens of the longest source.
            prefix_length: Tokens that every translation starts with, the decoder's first token included.
            positions: Positions of the model; `None` if there is no limit.
        """
        length = prefix_length + self.longest(source_length)
        return length if positions is None else min(length, positions)


@dataclass(frozen=True)
class BeamSearchOptions(SearchOptions):
    """Options of `beam_search`, with the paper's values (section 6.1)."""

    name: ClassVar[str] = "vanilla_beam_search"
    breadth: ClassVar[str] = "num_beams"

    num_beams: int = option(4, "Beam size, 1 for greedy search.", *whole(1, MOST))
    length_penalty: float = option(
        0.6,
        "Alpha of the length penalty, higher for longer output.",
        between(-10, 10),
        "lie between -10 and 10; the paper's is 0.6",
    )
    penalty: Literal["gnmt", "length"] = option(
        "gnmt",
        "gnmt: ((5 + length) / 6)^alpha, the paper's; length: length^alpha, the library's.",
        PENALTIES.__contains__,
        f"be one of {', '.join(PENALTIES)}",
    )

    def score(self, log_probability: Any, length: Any) -> Any:
        """The score of a hypothesis: its log-probability divided by the length penalty."""
        return log_probability / PENALTIES[self.penalty](length) ** self.length_penalty


def require_value(option: Field, value: Any) -> None:
    if not option.metadata["check"](value):
        raise ValueError(f"{option.name}={value!r} must {option.metadata['must']}.")


# --- the options of a model ---


def search_of(model: Any) -> type[SearchOptions]:
    """The options class that a model's class names. Other models of the library are decoded by beam search."""
    return getattr(model, "search_options", BeamSearchOptions)


def names_own_search(model: Any, config: "GenerationConfig") -> bool:
    """Whether a generation config says that its values are meant for the model's search."""
    name, own = getattr(config, SEARCH, None), search_of(model).name
    if name not in (None, own):
        raise ValueError(
            f"The generation config names the search {name!r}, but {type(model).__name__} has {own!r}: write that, or "
            "None for the library's search."
        )
    return name == own


def stored_options(config: "GenerationConfig", search: type[SearchOptions]) -> dict[str, Any]:
    """The options that a generation config holds."""
    values = {option.name: getattr(config, option.name, None) for option in fields(search)}
    return {name: value for name, value in values.items() if value is not None}


# --- options of `generate` that a search does not have ---


@cache
def library_names() -> frozenset[str]:
    """The options that the library's `generate` knows."""
    from transformers import GenerationConfig

    return frozenset(vars(GenerationConfig()))


# Their neutral values beside the library's defaults, and what to do instead.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "force_words_ids": ((), "give glossary={source term: target term} to a Translator"),
    "constraints": ((), "give glossary={source term: target term} to a Translator"),
    "num_beam_groups": ((1,), "for different translations set n_best or num_return_sequences, or sample"),
    "diversity_penalty": ((0.0,), "for different translations set n_best or num_return_sequences, or sample"),
    "penalty_alpha": ((0.0,), "contrastive search does not exist for encoder-decoders"),
    "dola_layers": ((), "it does not exist for encoder-decoders"),
    "prompt_lookup_num_tokens": ((), "leave it out"),
}
ONLY_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")


def require_supported(config: "GenerationConfig", given: dict[str, Any], *, sample: bool) -> None:
    """Refuses options of `generate` that a search does not have, given or in a generation config.

    Values that are the library's defaults count as unset: its trainer writes them.

    Args:
        config: The model's `generation_config`. How it would sample does not matter to a search.
        given: Options of a call.
        sample: Whether translations are drawn at random, not searched for.
    """
    for name, (neutral, advice) in REFUSED.items():
        for value, where in ((given.get(name), ""), (getattr(config, name, None), " in the generation config")):
            if value is not None and value not in neutral and value != LIBRARY_DEFAULTS.get(name):
                raise ValueError(f"{name}={value!r:.60}{where} is not supported: {advice}.")
    for name in ONLY_SAMPLING:
        if not sample and given.get(name) is not None:
            raise ValueError(
                f"{name}={given[name]!r} is for sampling and does nothing in a search: leave it out, or sample "
                "(sample=True in Translator, do_sample=True in generate)."
            )
