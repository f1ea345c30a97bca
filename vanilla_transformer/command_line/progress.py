"""Progress bars of the library in commands: work of less than two seconds has none."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging


DELAY = 2.0  # seconds until a bar appears


@contextmanager
def late_progress_bars() -> Iterator[None]:
    """Lets bars of the library, such as `Loading weights`, appear only if their work takes longer than `DELAY`."""
    previous = logging.set_tqdm_hook(_late_bar)
    try:
        yield
    finally:
        logging.set_tqdm_hook(previous)


def _late_bar(factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    bar = factory(*args, **{"delay": DELAY, **options})
    if not args and "iterable" not in options and not options.get("disable"):
        # Its work may take long between two updates, which are what draws a bar: draw it once in between.
        timer = threading.Timer(DELAY, bar.refresh)  # a closed bar is not drawn
        timer.daemon = True
        timer.start()
    return bar
