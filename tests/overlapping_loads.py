"""Makes the loads of two threads overlap where transformers replaces `PreTrainedModel.tie_weights`."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from transformers import initialization


def overlapping_loads() -> Callable[[], AbstractContextManager[None]]:
    """Returns what may take the place of `initialization.no_tie_weights`: two threads that are not kept apart replace
    the method at once, and the second one restores it last."""
    no_tie_weights = initialization.no_tie_weights
    entering, both_inside, first_has_left = threading.Lock(), threading.Barrier(2), threading.Event()
    entered = []

    @contextmanager
    def overlapping() -> Iterator[None]:
        with entering:
            patch = no_tie_weights()
            patch.__enter__()
            entered.append(patch)
        with suppress(threading.BrokenBarrierError):
            both_inside.wait(timeout=2)
        try:
            yield
        finally:
            if patch is not entered[0]:
                first_has_left.wait(timeout=10)
            patch.__exit__(None, None, None)
            first_has_left.set()

    return overlapping
