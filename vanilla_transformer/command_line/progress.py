"""Progress bars in commands: work of less than two seconds has none."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vanilla_transformer.hub.auto_classes import after_import


DELAY = 2.0  # seconds until a bar appears
_LIBRARY = "transformers.utils.logging"
_HOOKS: list[Any] = []  # of the commands that run now; the last one counts


@contextmanager
def late_progress_bars() -> Iterator[None]:
    """Lets bars, such as the library's `Loading weights`, appear only if their work takes longer than `DELAY`.

    The library may be imported later, or never.
    """
    os.environ.setdefault("TQDM_DELAY", str(DELAY))  # of bars that are not the library's
    _HOOKS.append(_late_bar)
    previous = _set_hook(_late_bar)
    after_import(_LIBRARY, lambda: _set_hook(_HOOKS[-1] if _HOOKS else None))
    try:
        yield
    finally:
        _HOOKS.pop()
        _set_hook(previous)


def _set_hook(hook: Callable[..., Any] | None) -> Any:
    """Sets the library's hook, if it is imported, and returns the one before."""
    return sys.modules[_LIBRARY].set_tqdm_hook(hook) if _LIBRARY in sys.modules else None


def _late_bar(factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    bar = factory(*args, **{"delay": DELAY, **options})
    if not args and "iterable" not in options and not options.get("disable"):
        # Its work may take long between two updates, which are what draws a bar: draw it once in between.
        timer = threading.Timer(DELAY, bar.refresh)  # a closed bar is not drawn
        timer.daemon = True
        timer.start()
    return bar
