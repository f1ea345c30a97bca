"""The searches that decode a model: one module for each, chosen by the model's class.

A search module has two functions. `search` is the decoding loop, for `generate(custom_generate=module.search)`.
`generate` is the entry point of a repository that has the module as `custom_generate/generate.py`. It also has three
constants: `OPTIONS`, the options of the search; `DEFAULTS`, values for some of them; and `BREADTH`, the option that
limits how many translations of a sentence can be returned. A module without them has those of beam search.

A model class names its search in `search_name`. Other models of the library are decoded by beam search.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from vanilla_transformer.models import beam_search
from vanilla_transformer.models import mask_predict_search as mask_predict


SEARCHES: dict[str, ModuleType] = {"beam_search": beam_search, "mask_predict": mask_predict}


def search_of(model: Any) -> ModuleType:
    """Returns the search module that a model's class names. A backend's model may be any object."""
    name = getattr(model, "search_name", "beam_search")
    if name not in SEARCHES:
        raise ValueError(
            f"{type(model).__name__} names the search {name!r}, which is not registered: add its module to "
            f"vanilla_transformer.translation.searches.SEARCHES. The searches: {', '.join(SEARCHES)}."
        )
    return SEARCHES[name]


def is_search_option(name: str) -> bool:
    """Whether an option belongs to a search. All others are options of `generate`."""
    return any(name in options_of(search) for search in SEARCHES.values())


def options_of(search: ModuleType) -> tuple[str, ...]:
    """The names of a search's options."""
    return getattr(search, "OPTIONS", beam_search.OPTIONS)


def defaults_of(search: ModuleType) -> dict[str, Any]:
    """The options that are filled in if they are not given."""
    return getattr(search, "DEFAULTS", beam_search.DEFAULTS)


def breadth_of(search: ModuleType) -> str:
    """The option that limits how many translations of a sentence can be returned."""
    return getattr(search, "BREADTH", beam_search.BREADTH)


def require_own_options(model: Any, names: Iterable[str]) -> None:
    """Refuses options of other searches than the model's."""
    search = search_of(model)
    own = options_of(search)
    for name in names:
        if is_search_option(name) and name not in own:
            raise ValueError(
                f"{name} is not an option of {type(model).__name__}, which is decoded by "
                f"{search.__name__.rsplit('.', 1)[-1]}: leave it out. Its options are {', '.join(own)}."
            )
