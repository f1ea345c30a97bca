"""tokens_per_update: the batches of an update, shared by any number of processes."""

import pytest

from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments


@pytest.fixture
def arguments(tmp_path, monkeypatch):
    def make(processes: int, **keys) -> TranslationTrainingArguments:
        monkeypatch.setattr(TranslationTrainingArguments, "world_size", processes)
        return TranslationTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", **keys)

    return make


@pytest.mark.parametrize(("processes", "accumulation"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_accumulation_follows_from_the_number_of_processes(arguments, processes, accumulation):
    made = arguments(processes, max_tokens=3125, tokens_per_update=25_000)
    assert made.gradient_accumulation_steps == accumulation
    assert (made.batches_per_update, made.update_limit) == (8, 25_000)


def test_without_it_the_processes_multiply_the_update(arguments):
    made = arguments(4, max_tokens=1000, gradient_accumulation_steps=2)
    assert (made.batches_per_update, made.update_limit) == (8, 8000)


@pytest.mark.parametrize(
    ("processes", "keys", "message"),
    [
        (
            1,
            {"max_tokens": 4096, "tokens_per_update": 25_000},
            "max_tokens to 3125, or tokens_per_update to a multiple",
        ),
        (
            16,
            {"max_tokens": 3125, "tokens_per_update": 25_000},
            "16 process.*tokens_per_update to a multiple of 50000",
        ),
        (8, {"max_tokens": 4096, "tokens_per_update": 25_000}, "max_tokens to 3125"),
        (3, {"max_tokens": 100, "tokens_per_update": 1000}, "set tokens_per_update to a multiple of 300"),
        (
            2,
            {"max_tokens": 100, "tokens_per_update": 800, "gradient_accumulation_steps": 3},
            "takes 4, with 2 process",
        ),
        (1, {"max_tokens": 100, "tokens_per_update": 0}, "must be a whole number of 1 or more"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_remedy(arguments, processes, keys, message):
    with pytest.raises(ValueError, match=message):
        arguments(processes, **keys)
