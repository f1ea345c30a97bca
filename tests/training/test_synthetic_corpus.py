"""Translations in parts: killed at any part, a rerun ends with the same bytes."""

import pytest

from vanilla_transformer.training.synthetic_corpus import PairCounts, TranslatedParts, digest_of_models, tagged


class Shouting:
    """Stands for a `Translator`: writes text in capitals, with the seed behind it."""

    def __init__(self, dies_at: int | None = None):
        self.backend, self.seed, self.calls, self.dies_at = self, None, 0, dies_at

    def set_seed(self, seed):
        self.seed = seed

    def translate(self, texts, n_best=1):
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt
        for text in texts:
            yield [type("Hypothesis", (), {"text": f"{text.upper()}\n{self.seed}-{rank}"}) for rank in range(n_best)]


TEXTS = [f"text {number}" for number in range(10)]


def translated(folder, translator, **settings):
    parts = TranslatedParts(folder, {"model": "m", **settings}, size=4)
    parts.translate(translator, TEXTS, seed=1, total=len(TEXTS), progress=False, n_best=2)
    return parts


def test_a_killed_run_continues_and_ends_the_same(tmp_path):
    whole = list(translated(tmp_path / "whole", Shouting()).lines())
    assert [line.split("-")[0].rsplit(" ", 1)[0] for line in whole[::2]] == [text.upper() for text in TEXTS]
    assert len({line.split()[-1] for line in whole}) == 2 * 3  # two of the n-best, and a seed for each of three parts
    with pytest.raises(KeyboardInterrupt):
        translated(tmp_path / "killed", Shouting(dies_at=3))
    rest = Shouting()
    assert list(translated(tmp_path / "killed", rest).lines()) == whole
    assert rest.calls == 1


def test_other_settings_do_not_continue_a_run(tmp_path):
    translated(tmp_path / "parts", Shouting(), num_beams=4)
    with pytest.raises(ValueError, match="begun with num_beams=4, not 5: continue it with the same options"):
        translated(tmp_path / "parts", Shouting(), num_beams=5)


def test_the_digest_of_a_model_is_that_of_its_content(tmp_path):
    for name, content in [("a", "{}"), ("b", "{}"), ("c", "{ }")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    a, b, c, hub = digest_of_models([*(str(tmp_path / name) for name in "abc"), "user/model"])
    assert a == b != c
    assert hub is None


def test_counts_and_tags():
    pairs, counts = [{"source": "a b", "target": "c"}, {"source": "d e", "target": "f g"}], PairCounts()
    assert list(counts.count(pairs)) == pairs
    assert counts.mean_words() == {"source": 2.0, "target": 1.5}
    assert [pair["source"] for pair in tagged(pairs, "<BT>")] == ["<BT> a b", "<BT> d e"]
    assert list(tagged(pairs, None)) == pairs
