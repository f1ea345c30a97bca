"""Fresh processes are measured, and one that fails is named."""

import sys

import pytest

from vanilla_transformer.scripts.benchmarks import cold_start
from vanilla_transformer.scripts.benchmarks.cold_start import run_fresh


def test_the_table_has_a_row_for_each_process(capsys, rows):
    cold_start.main(["--rounds", "1", "--backends", "ctranslate2"])
    printed = capsys.readouterr().out
    names = ["ten lines of Python", "vanilla --help", "vanilla translate, ctranslate2", "vanilla serve, ctranslate2"]
    for seconds, spread, megabytes in rows(printed, *names).values():
        assert float(seconds) > 0
        assert spread.count("-") == 1
        assert 5 < float(megabytes) < 2000


def test_a_process_that_fails_is_named():
    with pytest.raises(ValueError, match="this failed: no such thing"):
        run_fresh([sys.executable, "-c", "import sys; sys.exit('no such thing')", "this"], "")
