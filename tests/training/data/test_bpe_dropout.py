"""BPE-dropout: lossless, seeded, and with the same distribution as the dropout of `tokenizers`."""

import copy
from collections import Counter
from random import Random

import pytest
from tokenizers import models
from transformers import PreTrainedTokenizerFast

from vanilla_transformer.models.tokenization_vanilla_transformer import BYTES, train_tokenizer, with_language_tags
from vanilla_transformer.training.data import bpe_dropout
from vanilla_transformer.training.data.bpe_dropout import BpeDropout
from vanilla_transformer.training.data.demo_corpus import demo_corpus


TEXTS = [pair["en"] for pair in demo_corpus("test", 200)]
ODD = ["", "  two  spaces ", "</s> <pad> is text", "Ünïcödé 🙂 مرحبا", "tab\tand\nline", "x" * 50]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, vocab_size=600, show_progress=False)


def test_without_dropout_the_ids_are_the_tokenizers_own(tokenizer):
    texts = TEXTS + ODD
    assert BpeDropout(tokenizer, 0.0, seed=1)(texts, Random(0)) == [tokenizer(text)["input_ids"] for text in texts]


def test_nothing_is_lost_and_everything_repeats(tokenizer, monkeypatch):
    texts = TEXTS + ODD
    split = BpeDropout(tokenizer, 0.3, seed=1)(texts, Random(5))
    assert [tokenizer.decode(ids, skip_special_tokens=True) for ids in split] == texts
    assert split != [tokenizer(text)["input_ids"] for text in texts]
    monkeypatch.setattr(bpe_dropout, "KEPT_WORDS", 3)  # splits that are forgotten are drawn again, the same
    assert BpeDropout(tokenizer, 0.3, seed=1)(texts, Random(5)) == split
    assert BpeDropout(tokenizer, 0.3, seed=1)(texts, Random(6)) != split
    assert BpeDropout(tokenizer, 0.3, seed=2)(texts, Random(5)) != split


def test_texts_become_a_little_longer_than_with_the_librarys_dropout(tokenizer):
    """`tokenizers` gives skipped merges further chances. Its draws have no seed, so the bounds are wide."""
    theirs = copy.deepcopy(tokenizer)
    theirs.backend_tokenizer.model.dropout = 0.1
    lengths = sum(len(ids) for _ in range(10) for ids in theirs(TEXTS)["input_ids"])
    dropouts = [BpeDropout(tokenizer, 0.1, seed=seed) for seed in range(10)]
    ours = sum(len(ids) for dropout in dropouts for ids in dropout(TEXTS, Random(dropout.seed)))
    assert lengths < ours < 1.1 * lengths
    assert ours > 1.1 * 10 * sum(map(len, tokenizer(TEXTS)["input_ids"]))


def test_merges_are_skipped_with_the_probability(tokenizer):
    tokenizer = copy.deepcopy(tokenizer)
    bytes_alone = {token: number for number, token in enumerate([*BYTES, "Ġa", "ab", "Ġaab"])}
    # The first two merges do not compete, and the third joins their results.
    tokenizer.backend_tokenizer.model = models.BPE(bytes_alone, [("Ġ", "a"), ("a", "b"), ("Ġa", "ab")])
    dropout, number, p = BpeDropout(tokenizer, 0.25, seed=1), 10_000, 0.25
    names = {number: token for token, number in bytes_alone.items()}
    counts = Counter(
        tuple(names[token_id] for token_id in dropout._draw("Ġaab", Random(seed))) for seed in range(number)
    )
    assert counts["Ġ", "a", "a", "b"] / number == pytest.approx(p**2, abs=0.01)
    # One of the first two is made unless both are skipped; then the other, then the third.
    assert counts["Ġaab",] / number == pytest.approx((1 - p**2) * (1 - p) ** 2, abs=0.015)
    assert counts["Ġa", "ab"] / number == pytest.approx((1 - p**2) * (1 - p) * p, abs=0.01)


def test_what_has_no_merges_to_skip_is_refused(tokenizer):
    unigram = train_tokenizer(TEXTS, vocab_size=300, algorithm="unigram", show_progress=False)
    with pytest.raises(ValueError, match="needs a BPE tokenizer, not Unigram"):
        BpeDropout(unigram, 0.1, seed=1)
    with pytest.raises(ValueError, match=r"bpe_dropout=1.5 must be at least 0 and less than 1"):
        BpeDropout(tokenizer, 1.5, seed=1)
    extended = copy.deepcopy(tokenizer)
    extended.add_tokens(["newword"])
    with pytest.raises(ValueError, match="without added words"):
        BpeDropout(extended, 0.1, seed=1)


def test_a_tag_is_never_split(tokenizer):
    tagging = with_language_tags(tokenizer, ["de", "fr"])
    texts = [f">>de<< {text}" for text in TEXTS]
    assert BpeDropout(tagging, 0.0, seed=1)(texts, Random(0)) == [tagging(text)["input_ids"] for text in texts]
    split = BpeDropout(tagging, 0.3, seed=1)(texts, Random(5))
    assert split != [tagging(text)["input_ids"] for text in texts]
    assert {ids[0] for ids in split} == {tagging.convert_tokens_to_ids(">>de<<")}
    assert [tagging.decode(ids[1:], skip_special_tokens=True) for ids in split] == TEXTS
