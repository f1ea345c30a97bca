"""Noise on the decoder's inputs: the right share, only on ordinary tokens, repeatable, and none by default."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast
from transformers.models.marian.modeling_marian import shift_tokens_right

from vanilla_transformer.training.data.decoder_input_noise import NoisyPrefixCollator, PrefixNoise


PAD, START, END, UNKNOWN = SPECIAL = (0, 1, 2, 3)
VOCABULARY = 50
shares = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(lambda pair: (pair[0], pair[1] * (1 - pair[0])))
sentences = st.lists(st.lists(st.integers(4, VOCABULARY - 1), max_size=12), min_size=1, max_size=6)


def noise(**shares) -> PrefixNoise:
    return PrefixNoise(VOCABULARY, SPECIAL, START, PAD, UNKNOWN, **shares)


def labels_of(sentences) -> torch.Tensor:
    rows = [torch.tensor([*sentence, END]) for sentence in sentences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-100)


def many_labels(rows: int = 200, length: int = 50) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(0))


@given(sentences)
@settings(max_examples=50, deadline=None)
def test_without_shares_it_only_shifts(sentences):
    labels = labels_of(sentences)
    assert torch.equal(noise()(labels), shift_tokens_right(labels.clone(), PAD, START))


@given(sentences, shares, st.integers(0, 100))
@settings(max_examples=100, deadline=None)
def test_only_ordinary_tokens_change_and_only_into_ordinary_ones(sentences, shares, seed):
    labels = labels_of(sentences)
    before = labels.clone()
    clean = noise()(labels)
    noisy = noise(replace=shares[0], drop=shares[1])(labels, torch.Generator().manual_seed(seed))
    assert torch.equal(labels, before)
    assert (noisy[:, 0] == START).all()
    special = clean < 4
    assert torch.equal(noisy[special], clean[special])
    changed = noisy[noisy != clean]
    assert ((changed >= 4) | (changed == UNKNOWN)).all()
    assert (changed < VOCABULARY).all()
    if not shares[1]:
        assert (changed >= 4).all()


def test_shares_are_met():
    labels = many_labels()
    clean = noise()(labels)[:, 1:]
    noisy = noise(replace=0.2, drop=0.1)(labels, torch.Generator().manual_seed(0))[:, 1:]
    dropped = (noisy == UNKNOWN).float().mean().item()
    replaced = ((noisy != clean) & (noisy != UNKNOWN)).float().mean().item()
    ordinary = VOCABULARY - len(SPECIAL)
    assert dropped == pytest.approx(0.1, abs=0.01)
    assert replaced == pytest.approx(0.2 * (1 - 1 / ordinary), abs=0.015)  # a draw may hit the token itself
    assert len(noisy[noisy != clean].unique()) == ordinary + 1  # every ordinary id is drawn, and the unknown token


def test_same_generator_same_noise():
    labels = many_labels()
    first, second, other = (noise(replace=0.3)(labels, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("shares", [{"replace": -0.1}, {"drop": 1.1}, {"replace": 0.6, "drop": 0.6}])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ValueError, match=r"must be numbers from 0 to 1 whose sum is at most 1"):
        noise(**shares)


def test_a_vocabulary_of_special_tokens_is_refused():
    with pytest.raises(ValueError, match="All 4 ids are special"):
        PrefixNoise(4, SPECIAL, START, PAD, UNKNOWN)


# With a tokenizer and a collator


@pytest.fixture(scope="module")
def tokenizer():
    words = ["<pad>", "<s>", "</s>", "<unk>", *(f"word{number}" for number in range(VOCABULARY - 4))]
    backend = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@pytest.fixture
def examples():
    return [{"input_ids": [5, 6, END], "labels": [*range(4, 4 + length), END]} for length in (20, 30, 25)]


def test_ids_of_the_tokenizer(tokenizer):
    assert PrefixNoise.for_tokenizer(tokenizer, START, replace=0.1).is_ordinary.nonzero().squeeze(1).tolist() == list(
        range(4, VOCABULARY)
    )
    tokenizer_without = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="<pad>")
    with pytest.raises(ValueError, match="no unk_token"):
        PrefixNoise.for_tokenizer(tokenizer_without, START)


def test_collator_adds_decoder_inputs_and_leaves_the_rest(tokenizer, examples):
    plain = DataCollatorForSeq2Seq(tokenizer)
    noisy = NoisyPrefixCollator(plain, PrefixNoise.for_tokenizer(tokenizer, START, replace=0.5))
    expected, batch = plain(examples), noisy(examples)
    assert set(batch) == {*expected, "decoder_input_ids"}
    for name, tensor in expected.items():
        assert torch.equal(batch[name], tensor)
    assert not torch.equal(batch["decoder_input_ids"], noise()(batch["labels"]))


def test_noise_of_a_batch_does_not_depend_on_those_before(tokenizer, examples):
    """As after a resume, or in another worker: a fresh collator gives a batch the noise it had."""

    def collator(seed=0):
        return NoisyPrefixCollator(DataCollatorForSeq2Seq(tokenizer), noise(replace=0.5), seed=seed)

    used = collator()
    used(examples[:2])
    expected = used(examples)["decoder_input_ids"]
    assert torch.equal(collator()(examples)["decoder_input_ids"], expected)
    assert not torch.equal(collator(seed=1)(examples)["decoder_input_ids"], expected)
    used.set_epoch(1)
    assert not torch.equal(used(examples)["decoder_input_ids"], expected)
