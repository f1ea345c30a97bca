"""Only the decoder's input is corrupted; without noise, the perplexity is the model's own."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.scripts.explain import noise
from vanilla_transformer.scripts.explain.explanation import ExplainArguments
from vanilla_transformer.training.data.demo_corpus import demo_corpus


def test_without_noise_the_perplexity_is_the_models(model_folder):
    pairs = demo_corpus("test", 5)
    found = noise.perplexities(model_folder, pairs, [0.0, 0.5])
    model, tokenizer = (kind.from_pretrained(model_folder) for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
    losses, number = 0.0, 0
    for pair in pairs:
        source, target = (tokenizer(pair[language], return_tensors="pt").input_ids for language in ("en", "de"))
        losses += model(source, labels=target).loss.item() * target.numel()
        number += target.numel()
    assert found[0.0] == pytest.approx(torch.tensor(losses / number).exp().item(), rel=1e-4)
    assert found[0.5] != pytest.approx(found[0.0], rel=1e-4)


@pytest.mark.slow
def test_wrong_tokens_before_it_make_the_next_one_harder(tmp_path):
    """For both models. Which of them is better depends on how long they were trained."""
    rows = noise.explain(ExplainArguments(runs_dir=str(tmp_path))).tables[0].rows
    for name in (noise.CLEAN, noise.NOISY):
        assert rows["50%"][name] > rows["0%"][name]
