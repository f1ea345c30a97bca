"""All searches by name, and the options of a model's search. No part of saved models.

A new search is a subclass of `SearchOptions` in `SEARCHES`, a module with its decoding loop, and a model class that
names both.
"""

from collections.abc import Iterable
from dataclasses import Field, fields
from typing import Any

from .mask_predict_options import MaskPredictOptions
from .search_options import (
    LIBRARY_DEFAULTS,
    ONLY_SAMPLING,
    SEARCH,
    BeamSearchOptions,
    SearchOptions,
    names_own_search,
    require_value,
    search_of,
    stored_options,
)


STORED_MAX_LENGTH = 1024  # of a saved model without a limit of positions

SEARCHES: dict[str, type[SearchOptions]] = {cls.name: cls for cls in (BeamSearchOptions, MaskPredictOptions)}


PAPER_DECODING: dict[str, Any] = {
    "num_beams": BeamSearchOptions.num_beams,
    "length_penalty": BeamSearchOptions.length_penalty,
}


def all_options() -> dict[str, Field]:
    """The options of all searches by name."""
    return {option.name: option for search in SEARCHES.values() for option in fields(search)}


def require_values(**given: Any) -> None:
    """Refuses values that no search can use. `None` is an option that is not given."""
    known = all_options()
    for name, value in given.items():
        if name in known and value is not None:
            require_value(known[name], value)


# --- the options of a model ---


def has_own_search(model: Any) -> bool:
    """Whether a model's class has a search, which `generate` follows if the generation config names it."""
    return hasattr(model, "search_options")


def options_of(model: Any, **given: Any) -> SearchOptions:
    """The options of a model's search: those given, else those of its `generation_config`, else the defaults.

    Args:
        model: A model, or the object that an engine has in its place.
        given: Options of the search. `None` is an option that is not given.
    """
    search = search_of(model)
    require_own_options(model, [name for name, value in given.items() if value is not None])
    chosen = {name: value for name, value in given.items() if value is not None}
    return search(**{**_stored(model, search, chosen), **chosen})


def _stored(model: Any, search: type[SearchOptions], given: dict[str, Any]) -> dict[str, Any]:
    config = model.generation_config
    stored = stored_options(config, search)
    if names_own_search(model, config):
        return stored
    stored = {name: value for name, value in stored.items() if value != LIBRARY_DEFAULTS.get(name)}
    if "length_penalty" in stored and "length_penalty" not in given:
        stored.setdefault("penalty", "length")  # the library's meaning
    return stored


def require_own_options(model: Any, names: Iterable[str]) -> None:
    """Refuses options of other searches than the model's."""
    search, known = search_of(model), all_options()
    own = [option.name for option in fields(search)]
    for name in names:
        if name in known and name not in own:
            raise ValueError(
                f"{name} is not an option of {type(model).__name__}, which is decoded by {search.name}: leave it out. "
                f"Its options are {', '.join(own)}."
            )


def store_options(model: Any, **given: Any) -> None:
    """Writes the options of a model's search, and the name of the search, into its `generation_config`.

    Args:
        model: The model whose `generation_config` changes.
        given: Options that take the place of its own.
    """
    options, config = options_of(model, **given), model.generation_config
    for option in fields(options):
        value = getattr(options, option.name)
        # Only what differs from a default is written, but for beam size and length penalty, which readers look for.
        is_shown = option.name in ("num_beams", "length_penalty") or value != option.default
        setattr(config, option.name, value if is_shown else None)
    if getattr(options, "num_beams", None) == 1:
        config.length_penalty = None  # the library refuses to save a penalty beside one beam
    for name in ("do_sample", *ONLY_SAMPLING):  # else `generate` would sample
        setattr(config, name, None)
    setattr(config, SEARCH, options.name)
    config._from_model_config = False  # with this mark, the library would drop the names that it does not know
    if config.max_length is None or config.max_length == config._get_default_generation_params()["max_length"]:
        # Else the library's trainer stores its default of 20 tokens at the first evaluation.
        config.max_length = getattr(model, "longest_sequence", None) or STORED_MAX_LENGTH
