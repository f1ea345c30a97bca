"""The copying task: what is drawn, learned and counted."""

import torch

from vanilla_transformer.scripts.explain import copying


def test_sequences_have_no_token_twice_and_no_special_one():
    ids = copying.draw_sequences(50, 16, torch.Generator().manual_seed(0))
    assert ids.shape == (50, 16)
    assert all(len(set(row)) == 16 for row in ids.tolist())
    assert copying.FIRST_TOKEN <= ids.min() <= ids.max() < copying.SIZES["vocab_size"]
    assert {batch.shape[1] for batch, _ in zip(copying.batches([3, 5]), range(20), strict=False)} == {3, 5}


def test_a_target_token_names_two_source_tokens():
    source, target = next(copying.pairs_to_name())
    assert (source.shape, target.shape) == ((64, 12), (64, 6))
    first, second = (source - copying.FIRST_TOKEN).split(6, dim=1)
    assert torch.equal((target - copying.FIRST_TOKEN) // copying.DIGITS, first)
    assert torch.equal((target - copying.FIRST_TOKEN) % copying.DIGITS, second)
    assert target.max() < copying.SIZES["vocab_size"]


def test_learning_lowers_the_loss_and_the_first_weights_are_always_the_same():
    first, second = (copying.learn(copying.make_model(), copying.batches(), 20) for _ in range(2))
    assert first == second
    assert copying.smooth(first)[-1] < copying.smooth(first)[0]


def test_a_model_that_writes_its_source_is_right(monkeypatch):
    """A stand-in for a trained model: the logits point to the source token at the next place."""
    model = copying.make_model()

    class Copier(type(model)):
        def forward(self, input_ids, decoder_input_ids, **options):
            place = decoder_input_ids.shape[1] - 1
            logits = torch.nn.functional.one_hot(input_ids[:, place], copying.SIZES["vocab_size"]).float()
            return type("Output", (), {"logits": logits[:, None]})

    assert copying.right_tokens(model) < 0.5
    model.__class__ = Copier
    assert copying.right_tokens(model) == 1.0
