"""vanilla prepare: what it leaves behind is what training starts from."""

import pytest

from vanilla_transformer.training import accelerate_loop, prepare, train
from vanilla_transformer.training.data import prepared_text


@pytest.fixture
def refuse_learning(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("the vocabulary is learned again")

    return lambda: monkeypatch.setattr(prepared_text, "learn_vocabularies", refuse)


KEYS = {"max_steps": 1, "eval_strategy": "no", "average_checkpoints": 0}


def test_training_starts_from_what_was_prepared(recipe, tmp_path, capsys, refuse_learning):
    words = recipe(**KEYS)
    prepare.main(words)
    assert "tokens in the vocabulary" in capsys.readouterr().out
    refuse_learning()
    prepare.main(words)
    train.main(words)
    assert (tmp_path / "run" / "model" / "tokenizer.json").read_text() == (
        tmp_path / "run" / "tokenizer" / "tokenizer.json"
    ).read_text()


def test_the_plain_loop_starts_from_it_too(recipe, refuse_learning):
    words = recipe(**KEYS)
    prepare.main(words)
    refuse_learning()
    accelerate_loop.main(words)


@pytest.mark.parametrize("change", [("--vocab_size", "290"), ("--max_words", "5")])
def test_other_options_or_text_are_prepared_again(recipe, change, refuse_learning):
    words = recipe(**KEYS)
    prepare.main(words)
    refuse_learning()
    with pytest.raises(AssertionError, match="learned again"):
        train.main([*words, *change])


def test_a_recipe_for_gpus_is_prepared_without_one(recipe):
    prepare.main(recipe(**KEYS, bf16=True, use_cpu=False))


def test_a_stream_is_refused(recipe):
    with pytest.raises(SystemExit, match="there is nothing to prepare"):
        prepare.main(recipe(streaming=True))
