"""A corpus in shards: killed at any of them, a rerun ends with the same bytes; memory does not grow with it."""

import gzip
from functools import partial
from itertools import islice
from types import SimpleNamespace

import psutil
import pytest

from tests.scripts.conftest import model_folder  # noqa: F401 (a fixture)
from vanilla_transformer import Hypothesis, Translator
from vanilla_transformer.bulk_translation.corpus_translation import (
    CorpusTranslation,
    ShardWorker,
    device_of_process,
    digest_of_models,
)
from vanilla_transformer.bulk_translation.shard_formats import Lines, corpus_of
from vanilla_transformer.bulk_translation.shards import equal_ranges
from vanilla_transformer.command_line.inference_arguments import LoadingArguments


class Shouting:
    """Stands for a `Translator`: writes text in capitals, with the seed behind it."""

    def __init__(self, dies_at: int | None = None):
        self.backend, self.seed, self.calls, self.dies_at, self.first_numbers = self, None, 0, dies_at, []

    def set_seed(self, seed):
        self.seed = seed

    def translate(self, texts, n_best=1, numbers=(1,)):
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt
        self.first_numbers.append(next(iter(numbers)))
        return self._translate(iter(texts), n_best)

    def _translate(self, texts, n_best):
        while window := list(islice(texts, 4096)):
            for text in window:
                yield [Hypothesis(f"{text.upper()}\n{self.seed}-{rank}") for rank in range(n_best)]


def translated(folder, corpus, translator, shards=3, **generation) -> CorpusTranslation:
    divide = partial(equal_ranges, number=shards)
    translation = CorpusTranslation(str(folder), corpus, ["m"], LoadingArguments(), generation, divide, seed=1)
    translation.load = lambda: translator
    translation.begin()
    if isinstance(translator, Shouting):
        translator.calls, translator.first_numbers = 0, []  # those of `begin` do not count
    ShardWorker(translation, translator).work()
    return translation


TEXTS = [f"text {number}" for number in range(10)]


def ten_texts():
    return iter(TEXTS)


def test_a_killed_run_continues_and_ends_the_same(tmp_path):
    translator = Shouting()
    lines = list(translated(tmp_path / "whole", Lines(ten_texts), translator, n_best=2).lines())
    assert [line.split("-")[0].rsplit(" ", 1)[0] for line in lines[::2]] == [text.upper() for text in TEXTS]
    assert len({line.split()[-1] for line in lines}) == 2 * 3  # two of the n-best, and a seed for each of three shards
    assert translator.first_numbers == [1, 4, 7]
    with pytest.raises(KeyboardInterrupt):
        translated(tmp_path / "killed", Lines(ten_texts), Shouting(dies_at=3), n_best=2)
    rest = Shouting()
    assert list(translated(tmp_path / "killed", Lines(ten_texts), rest, n_best=2).lines()) == lines
    assert rest.calls == 1


def test_shards_are_read_in_any_order(tmp_path):
    translation = translated(tmp_path / "out", Lines(ten_texts), Shouting(), shards=5)
    expected = [file.read_bytes() for file in translation.shards.files()]
    worker = ShardWorker(translation, Shouting())
    for number in (3, 1, 0, 4):
        translation.shards.file(number).unlink()
        worker.work_on(number)
    assert [file.read_bytes() for file in translation.shards.files()] == expected


def test_each_process_has_the_gpu_of_its_rank(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: SimpleNamespace(type="xpu"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 4)
    assert device_of_process() is None  # one process: the usual choice
    monkeypatch.setenv("LOCAL_RANK", "5")
    assert device_of_process() == "xpu:1"
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda check_available: None)
    assert device_of_process() is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corpus": Lines(lambda: iter([*TEXTS, "more"]))}, "begun with content of the input="),
        ({"corpus": Lines(ten_texts, ["score"])}, r"begun with details=\[\], not \['score'\]: continue"),
        ({"shards": 4}, "begun with shards=3, not 4: continue it with the same options, or delete that folder"),
        ({"n_best": 2}, "begun with n_best=None, not 2: continue"),
    ],
)
def test_another_input_or_option_is_refused(tmp_path, change, message):
    translated(tmp_path / "out", Lines(ten_texts), Shouting())
    with pytest.raises(ValueError, match=message):
        translated(tmp_path / "out", **{"corpus": Lines(ten_texts), "translator": Shouting(), **change})


def test_an_input_that_shrinks_meanwhile_is_an_error(tmp_path):
    reads = iter([TEXTS, TEXTS[:8]])
    with pytest.raises(ValueError, match="The input ends after row 8 but had 10: it was changed"):
        translated(tmp_path / "out", Lines(lambda: iter(next(reads))), Shouting())
    assert not (tmp_path / "out" / "translations.txt").exists()


def test_an_empty_corpus_has_an_empty_translation(tmp_path):
    translation = translated(tmp_path / "out", Lines(lambda: iter([])), Shouting())
    translation.join()
    assert translation.shards.whole.read_bytes() == b""


def test_the_digest_of_a_model_is_that_of_its_content(tmp_path):
    for name, content in [("a", "{}"), ("b", "{}"), ("c", "{ }")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(content)
    a, b, c, hub, bundled = digest_of_models(
        [*(str(tmp_path / n) for n in "abc"), "user/model", "multi30k-en-de-tiny"]
    )
    assert a == b != c
    assert hub is None  # it is not there
    assert bundled is not None


class Measured:
    """A translator that notes the memory of the process before each shard."""

    def __init__(self, translator):
        self.translator, self.backend, self.megabytes = translator, self, []

    def set_seed(self, seed):
        self.megabytes.append(psutil.Process().memory_info().rss / 2**20)
        self.translator.backend.set_seed(seed)

    def translate(self, texts, **options):
        return self.translator.translate(texts, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lines", "real"), [(10_000_000, False), (500_000, True)], ids=["10M lines", "500k with a model"]
)
def test_memory_does_not_grow_with_the_corpus(tmp_path, model_folder, lines, real):  # noqa: F811
    path = tmp_path / "big.en.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        for start in range(0, lines, 100_000):
            file.write("".join(f"cat {number}\n" for number in range(start, start + 100_000)))
    greedy = {"num_beams": 1, "max_new_tokens": 1} if real else {}
    translator = Measured(Translator.from_pretrained(model_folder, device="cpu") if real else Shouting())
    translation = translated(tmp_path / "out", corpus_of([str(path)]), translator, shards=100, **greedy)
    translation.join()
    megabytes = [*translator.megabytes, psutil.Process().memory_info().rss / 2**20]
    print("megabytes after each tenth:", [round(number, 1) for number in megabytes[::10]])
    assert max(megabytes) - max(megabytes[:20]) < 8
    with gzip.open(translation.shards.whole, "rt") as file:
        assert sum(1 for _ in file) == lines
