"""The global token finds what a plain window can't."""

import pytest
import torch

from vanilla_transformer.scripts.benchmarks import benchmark, retrieval


def test_one_special_word_is_far_from_the_question():
    options = retrieval.RetrievalBenchmarkArguments()
    ids, words = retrieval.texts(50, 64, options)
    is_word = (ids >= retrieval.FIRST_WORD) & (ids < retrieval.FIRST_WORD + options.words)
    rows, places = is_word.nonzero(as_tuple=True)
    assert rows.tolist() == list(range(50))
    assert (ids[rows, places] - retrieval.FIRST_WORD).tolist() == words.tolist()
    assert places.max() < 32
    assert (ids[:, -1] == retrieval.QUESTION).all()


def test_a_window_can_see_nothing_of_the_word():
    """The last token's state is the same whatever the word is. Longformer's is not."""
    options = retrieval.RetrievalBenchmarkArguments()
    ids, _ = retrieval.texts(1, 64, options)
    other = ids.clone()
    other[:, 1:32] = torch.randint(retrieval.FIRST_WORD, retrieval.FIRST_WORD + 8, (1, 31))
    for pattern, is_blind in (("window", True), ("longformer", False)):
        encoder = retrieval.make_encoder(pattern, options).eval()
        first, second = (encoder(tokens).last_hidden_state[:, -1] for tokens in (ids, other))
        assert torch.allclose(first, second, atol=1e-6) == is_blind


def test_the_benchmark_reports_each_pattern_and_length(capsys, rows):
    options = ["--lengths", "48", "64", "--steps", "2", "--more_steps", "1", "--tests", "4", "--device", "cpu"]
    benchmark.main(["retrieval", *options])
    found = rows(capsys.readouterr().out, "window", "longformer", "guessing")
    assert all(len(cells) == 2 for cells in found.values())
    assert found["guessing"] == ["12%", "12%"]


@pytest.mark.slow
def test_longformer_solves_at_16k_tokens_what_a_window_can_only_guess():
    options = retrieval.RetrievalBenchmarkArguments(device="cpu", tests=32)
    shares = {
        pattern: retrieval.accuracy(retrieval.train(pattern, options, torch.device("cpu")), 16384, options)
        for pattern in retrieval.PATTERNS
    }
    assert shares["longformer"] > 0.75
    assert shares["window"] < 0.4  # guessing is right once in eight times


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--lengths", "32"], r"--lengths \[32\]: give lengths of more than 33"),
        (["--steps", "0"], "--steps 0 must be at least 1"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(["retrieval", *options])
