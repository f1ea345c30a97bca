"""Whether torch and transformers are there, without importing them."""

from functools import cache
from importlib.util import find_spec


@cache
def missing_for_torch() -> tuple[str, ...]:
    """Returns what the engine torch needs and is not installed.

    Only this function knows whether torch is there. `sys.modules` does not: while a thread imports torch for the first
    time, others find half of it.
    """
    return tuple(name for name in ("torch", "transformers") if find_spec(name) is None)


def require_torch(what: str) -> None:
    """Refuses what only torch does where it is not installed."""
    if missing := missing_for_torch():
        names = " and ".join(missing)
        raise ImportError(f"{what} needs {names}: pip install {' '.join(missing)}, or leave it out.")
