"""Both trainers see the same pairs once."""

import math

import pytest

from vanilla_transformer.scripts.benchmarks import benchmark, benchmark_corpus, end_to_end
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.token_batches import TokenBatchSampler


def test_both_trainers_see_every_pair_once(text, capsys, rows, in_this_process, monkeypatch):
    """Tokens, updates and the fixed batch size, compared with direct counts."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    options = ["--vocab_size", "270", "--max_tokens", "100", "--rounds", "1", "--device", "cpu"]
    benchmark.main(["end_to_end", "--train_files", text, *options])
    printed = capsys.readouterr().out

    _, tokens = benchmark_corpus.learn_and_tokenise(
        CorpusArguments(source_lang="en", target_lang="de", train_files=[text]), 270
    )
    source, target = ([len(ids) for ids in tokens[column]] for column in ("input_ids", "labels"))
    longest = max(source + target)
    found = rows(printed, end_to_end.OURS, end_to_end.THEIRS)
    batches = len(TokenBatchSampler(source, target, max_tokens=100))
    assert found[end_to_end.OURS][3] == str(batches)
    assert found[end_to_end.THEIRS][1:4] == ["1.00", "1.00-1.00", str(math.ceil(80 / (100 // longest)))]
    assert f"{sum(source) + sum(target):,} tokens of both sides" in printed
    assert f"MarianMT: {100 // longest} pairs" in printed
    assert f"{100 // longest} pairs of the longest length, {longest} tokens, reach" in printed
    with pytest.raises(SystemExit, match=f"--max_tokens 5: the longest pair has {longest} tokens"):
        benchmark.main(["end_to_end", "--train_files", text, "--vocab_size", "270", "--max_tokens", "5"])


def test_a_fixed_batch_keeps_the_limit_of_tokens_with_the_longest_pair_in_it(text, tmp_path):
    options = end_to_end.EndToEndBenchmarkArguments(vocab_size=270, max_tokens=100, pairs=30)
    prepared = end_to_end.prepare(
        CorpusArguments(source_lang="en", target_lang="de", train_files=[text]), options, str(tmp_path / "prepared")
    )
    assert prepared.pairs == 30
    assert prepared.batch_size * prepared.longest <= 100 < (prepared.batch_size + 1) * prepared.longest


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["end_to_end", "--dataset", "demo", "--pairs", "-5"], "--pairs -5 must not be negative"),
        (["end_to_end", "--dataset", "demo", "--device", "cuda:1"], "CUDA_VISIBLE_DEVICES=1 before the command"),
    ],
)
def test_mistakes_get_a_sentence(options, sentence):
    with pytest.raises(SystemExit, match=sentence):
        benchmark.main(options)
