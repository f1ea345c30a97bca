"""A text has one translation, alone or in a batch, with every backend that promises it."""

import shutil
from pathlib import Path

import pytest
import torch

from vanilla_transformer import Translator
from vanilla_transformer.training.data.demo_corpus import demo_corpus


ROOT = Path(__file__).parent.parent.parent
CAPTIONS = (ROOT / "tests" / "data" / "captions.en").read_text(encoding="utf-8").splitlines()
PROMISED = ["torch", "ctranslate2", "auto"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A copy of the bundled model, which gets its conversions."""
    return shutil.copytree(ROOT / "model_cards" / "multi30k-en-de-tiny", tmp_path_factory.mktemp("model") / "model")


def batched_and_alone(folder: Path, backend: str, texts: list[str]) -> tuple[list[str], list[str]]:
    """In greedy search, which takes less time; with the default engine by beam search, as users have it."""
    if backend in ("ctranslate2", "auto"):
        pytest.importorskip("ctranslate2")
    options = {"device": "cpu", "backend": backend}
    translators = [Translator.from_pretrained(folder, max_tokens=max_tokens, **options) for max_tokens in (2048, 1)]
    search = {} if backend == "auto" else {"num_beams": 1}
    batched, alone = (translator(texts, **search) for translator in translators)
    return batched, alone


@pytest.mark.parametrize("backend", PROMISED)
def test_a_translation_does_not_depend_on_its_batch(folder, backend):
    batched, alone = batched_and_alone(folder, backend, CAPTIONS)
    assert batched == alone


@pytest.mark.slow
@pytest.mark.parametrize("backend", PROMISED)
def test_ten_thousand_translations_do_not_depend_on_their_batches(folder, backend):
    texts = [pair["en"] for pair in demo_corpus("train", 10_000)]
    assert len(set(texts)) == 10_000
    batched, alone = batched_and_alone(folder, backend, texts)
    translator = Translator.from_pretrained(folder, device="cpu", backend="torch")
    triples = zip(texts, batched, alone, strict=True)
    different = [triple for triple in triples if triple[1] != triple[2]]
    assert len(different) <= (1 if backend == "torch" else 0)
    for triple in different:
        assert margin_where_they_part(translator, *triple) < 1e-5


@torch.no_grad()
def margin_where_they_part(translator: Translator, text: str, batched: str, alone: str) -> float:
    """Difference of the two best logits where two translations of a text have their first different token."""
    source, *translations = (translator.tokenizer(each).input_ids for each in (text, batched, alone))
    place = next(place for place, pair in enumerate(zip(*translations, strict=False)) if len(set(pair)) > 1)
    logits = translator.model(input_ids=torch.tensor([source]), labels=torch.tensor([translations[0]])).logits
    best, second = logits[0, place].topk(2).values.tolist()
    return best - second
