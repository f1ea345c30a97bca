"""Prefixes are corrupted as asked, and only what the model writes after them is scored."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.scripts.explain import noise
from vanilla_transformer.scripts.explain.explanation import ExplainArguments
from vanilla_transformer.training.data.demo_corpus import demo_corpus


def test_a_model_that_writes_the_reference_scores_100_whatever_the_prefix(model_folder, monkeypatch):
    prefixes, pairs = [], demo_corpus("test", 20)
    kept = []

    def write_reference(model, input_ids, attention_mask, decoder_input_ids, **options):
        prefixes.append(decoder_input_ids)
        return torch.cat([decoder_input_ids, kept[0]], dim=1)

    monkeypatch.setattr(type(AutoModelForSeq2SeqLM.from_pretrained(model_folder)), "generate", write_reference)
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    targets = tokenizer([pair["de"] for pair in pairs], padding=True, return_tensors="pt").input_ids
    kept.append(targets[:, noise.PREFIX :])
    scores = noise.bleu_after_prefixes(model_folder, pairs, [0.0, 0.5])
    assert scores == {0.0: pytest.approx(100), 0.5: pytest.approx(100)}
    clean, noisy = prefixes
    assert torch.equal(clean[:, 1:], targets[:, : noise.PREFIX])
    assert 0.3 < (clean[:, 1:] != noisy[:, 1:]).float().mean() < 0.7


@pytest.mark.slow
def test_a_wrong_prefix_lowers_the_score_of_what_follows(tmp_path):
    """For both models. Which of them is better depends on how long they were trained."""
    rows = noise.explain(ExplainArguments(runs_dir=str(tmp_path))).tables[0].rows
    for name in (noise.CLEAN, noise.NOISY):
        assert rows["50%"][name] < rows["0%"][name]
