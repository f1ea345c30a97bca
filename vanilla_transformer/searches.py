"""The searches that decode a model: one module for each, chosen by the model's class.

A search module has two functions. `search` is the decoding loop, for `generate(custom_generate=module.search)`.
`generate` is the entry point of a repository that has the module as `custom_generate/generate.py`. It also has three
constants: `OPTIONS`, the options of the search; `DEFAULTS`, values for some of them; and `BREADTH`, the option that
limits how many translations of a sentence can be returned. A model class names its search in `search_name`. Other
models of the library are decoded by beam search.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Any

from . import beam_search, mask_predict


SEARCHES: dict[str, ModuleType] = {"beam_search": beam_search, "mask_predict": mask_predict}


def search_of(model: Any) -> ModuleType:
    """Returns the search module that a model's class names. A backend's model may be any object."""
    name = getattr(model, "search_name", "beam_search")
    if name not in SEARCHES:
        raise ValueError(
            f"{type(model).__name__} names the search {name!r}, which is not registered: add its module to "
            f"vanilla_transformer.searches.SEARCHES. The searches: {', '.join(SEARCHES)}."
        )
    return SEARCHES[name]


def require_own_options(model: Any, names: Iterable[str]) -> None:
    """Refuses options of other searches than the model's."""
    own = search_of(model)
    others = {option for search in SEARCHES.values() for option in getattr(search, "OPTIONS", ())}
    for name in names:
        if name in others and name not in own.OPTIONS:
            raise ValueError(
                f"{name} is not an option of {type(model).__name__}, which is decoded by "
                f"{own.__name__.rsplit('.', 1)[-1]}: leave it out. Its options are {', '.join(own.OPTIONS)}."
            )
