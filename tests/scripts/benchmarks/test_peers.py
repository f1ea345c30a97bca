"""The systems are the same network as this model."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vanilla_transformer.scripts.benchmarks import peers
from vanilla_transformer.scripts.benchmarks import training_speed as train
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_learners_start_from_the_same_loss(text, dtype):
    """They are the same network: without dropout, MarianMT with the same weights has the same loss."""
    options = train.TrainBenchmarkArguments(vocab_size=270, max_tokens=100, batches=1)
    (batch,) = train.training_batches(CorpusArguments(source_lang="en", target_lang="de", train_files=[text]), options)
    config = peers.configuration("tiny", 270, dropout=0.0)
    losses = {}
    for name in peers.MODELS:
        torch.manual_seed(0)
        losses[name] = peers.make_learner(name, config, dtype=dtype)(batch).item()
    # The two definitions of smoothing differ by a hair.
    assert losses["MarianMT"] == pytest.approx(losses["vanilla_transformer"], rel=0.01)
    assert losses["torch.nn.Transformer"] == pytest.approx(losses["vanilla_transformer"], rel=0.3)


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_recurrent_models_have_as_many_parameters_as_the_transformer(attention):
    config = peers.configuration("tiny", 6000)
    model, _ = peers.recurrent_model(config, attention)
    assert model.num_parameters() == pytest.approx(2_093_056, rel=0.01)


def test_the_flops_of_an_update_are_those_that_torch_counts():
    """On MarianMT, the same network, because the counter knows all of its operations; without padding."""
    config = peers.configuration("tiny", 270, dropout=0.0)
    ids = torch.randint(4, 270, (10, 6))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    model, loss = peers.marian_model(config)
    model.set_attn_implementation("eager")
    with FlopCounterMode(display=False) as counter:
        loss(batch).backward()
    assert peers.update_flops(config, batch) == counter.get_total_flops()
