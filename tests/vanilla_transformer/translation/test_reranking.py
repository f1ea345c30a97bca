"""Translations are ranked by both models, one formula for each text, however many texts there are."""

import pytest
import torch

from vanilla_transformer import Translator, VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.translation.reranking import RerankingTranslator


TEXTS = ["A dog runs.", "", "Two men are standing on a ladder.", "A cat", "the cat and the dog sleep under a tree"]
QUICK = {"num_beams": 4, "max_extra_tokens": 3}


@pytest.fixture(scope="module")
def both() -> list[Translator]:
    """A model and one of the reverse direction, with a window smaller than the texts."""
    tokenizer = train_tokenizer(TEXTS, vocab_size=290, min_frequency=1, show_progress=False)
    translators = []
    for seed, languages in enumerate([("en", "de"), ("de", "en")]):
        torch.manual_seed(seed)
        sizes = {"vocab_size": 300, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}
        fields = {**sizes, "source_lang": languages[0], "target_lang": languages[1]}
        model = VanillaTransformerForConditionalGeneration(VanillaTransformerConfig.from_preset("tiny", **fields))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(3.0)  # livelier than fresh weights
        translators.append(Translator(model.eval(), tokenizer, window=3))
    return translators


@pytest.mark.parametrize("weight", [0.0, 0.5, 4.0])
def test_the_score_is_the_weighted_sum_of_both_models(both, weight):
    forward, reverse = both
    found = list(RerankingTranslator(*both, weight=weight, candidates=4).translate(TEXTS, n_best=3, **QUICK))
    proposals = list(forward.translate(TEXTS, n_best=4, **QUICK))
    for text, hypotheses, ranked in zip(TEXTS, proposals, found, strict=True):
        scores = {}
        for each in hypotheses:
            (there,) = reverse.score([(each.text, text)])
            scores[each.text] = each.score + weight * there.log_probability / there.tokens
        best = sorted(scores.values(), reverse=True)[:3] if text else [scores[""]] * 3
        assert [each.score for each in ranked] == pytest.approx(best, abs=1e-4)
        assert [scores[each.text] for each in ranked] == pytest.approx(best, abs=1e-4)
    if not weight:
        assert [each[0].text for each in found] == forward(TEXTS, **QUICK)


def test_a_large_weight_changes_translations(both):
    forward, _ = both
    reranker = RerankingTranslator(*both, weight=100.0)
    options = {"num_beams": 5, "max_extra_tokens": 3}
    assert reranker(TEXTS, **options) != forward(TEXTS, **options)
    assert reranker(TEXTS[0], **options) == reranker(TEXTS, **options)[0]


def test_what_can_not_be_ranked_is_refused(both):
    forward, _ = both
    with pytest.raises(ValueError, match="nothing to rank"):
        RerankingTranslator(*both, candidates=1)
    with pytest.raises(ValueError, match="source_lang is 'de', but the reverse model translates en"):
        RerankingTranslator(forward, forward)
    with pytest.raises(ValueError, match="takes several texts"):
        RerankingTranslator(*both).translate(TEXTS[0], num_beams=5)
    with pytest.raises(ValueError, match="Samples have no score"):
        RerankingTranslator(*both).translate(TEXTS, sample=True)
    with pytest.raises(ValueError, match="more than the 5 candidates"):
        RerankingTranslator(*both).translate(TEXTS, n_best=6, num_beams=6)
    with pytest.raises(ValueError, match="num_beams"):
        RerankingTranslator(*both).translate(TEXTS, num_beams=2)
