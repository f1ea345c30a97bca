"""The searches that decode a model: one module for each, chosen by the model's class.

A search module has two functions. `search` is the decoding loop, for `generate(custom_generate=module.search)`.
`generate` is the entry point of a repository that has the module as `custom_generate/generate.py`. A model class names
its search in `search_name`. Other models of the library are decoded by beam search.
"""

from types import ModuleType

from transformers import PreTrainedModel

from . import beam_search


SEARCHES: dict[str, ModuleType] = {"beam_search": beam_search}


def search_of(model: PreTrainedModel) -> ModuleType:
    """Returns the search module that a model's class names."""
    name = getattr(model, "search_name", "beam_search")
    if name not in SEARCHES:
        raise ValueError(
            f"{type(model).__name__} names the search {name!r}, which is not registered: add its module to "
            f"vanilla_transformer.searches.SEARCHES. The searches: {', '.join(SEARCHES)}."
        )
    return SEARCHES[name]
