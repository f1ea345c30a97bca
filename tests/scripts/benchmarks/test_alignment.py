import pytest

from vanilla_transformer.hub.saved_files import CAPTIONS
from vanilla_transformer.scripts.benchmarks import alignment


def test_a_model_of_captions_aligns_the_demo_s_words_better_than_chance(capsys):
    """It has never seen such sentences, but many of their words."""
    alignment.main(["--models", CAPTIONS, "--sentences", "30"])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(CAPTIONS))
    assert 10 < float(line.split()[-1].removesuffix("%")) < 80
    with pytest.raises(SystemExit, match="No model is given"):
        alignment.main([])
