"""The entry point lists the benchmarks and calls them by name."""

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark


def test_help_and_an_unknown_name(capsys):
    benchmark.main(["--help"])
    assert f"vanilla benchmark {{{','.join(benchmark.BENCHMARKS)}}}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no benchmark 'speed': choose one of train, end_to_end"):
        benchmark.main(["speed"])
