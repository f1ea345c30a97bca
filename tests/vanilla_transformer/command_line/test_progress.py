"""Progress bars in commands: none for short work, one for long work."""

import io
import time

import pytest
from transformers.utils import logging

from vanilla_transformer.command_line import progress


@pytest.fixture
def drawn(monkeypatch):
    """What bars write."""
    monkeypatch.setattr(progress, "DELAY", 0.1)
    return io.StringIO()


def test_short_work_has_no_bar(drawn):
    with progress.late_progress_bars():
        assert list(logging.tqdm(range(3), desc="Loading weights", file=drawn)) == [0, 1, 2]
    assert drawn.getvalue() == ""


def test_long_work_has_a_bar_even_between_two_updates(drawn):
    with progress.late_progress_bars():
        bar = logging.tqdm(total=9, desc="translating", file=drawn)
        time.sleep(0.3)
        assert "translating" in drawn.getvalue()
        bar.close()


def test_bars_of_other_programs_are_as_before(drawn):
    with progress.late_progress_bars():
        pass
    list(logging.tqdm(range(3), desc="Loading weights", file=drawn))
    assert "Loading weights" in drawn.getvalue()
