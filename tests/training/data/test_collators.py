import torch
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer
from vanilla_transformer.training.data.bpe_dropout import BpeDropout
from vanilla_transformer.training.data.collators import RetokenizingCollator, TokenColumns, WithoutFullMask


TEXTS = ["the cat sleeps in the garden", "a dog sleeps"]


def examples(tokenizer):
    return [{"source": text, "target": text[::-1], **tokenizer(text, text_target=text[::-1])} for text in TEXTS]


def test_only_token_columns_reach_the_padding():
    tokenizer = train_tokenizer(TEXTS, vocab_size=280, min_frequency=1, show_progress=False)
    batch = TokenColumns(DataCollatorForSeq2Seq(tokenizer))(examples(tokenizer))
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert (batch["labels"] == -100).any()


def test_a_mask_that_hides_nothing_is_left_out():
    tokenizer = train_tokenizer(TEXTS, vocab_size=280, min_frequency=1, show_progress=False)
    collator = WithoutFullMask(TokenColumns(DataCollatorForSeq2Seq(tokenizer)))
    padded, full = collator(examples(tokenizer)), collator(examples(tokenizer)[:1])
    assert set(padded) == {"input_ids", "attention_mask", "labels"}
    assert set(full) == {"input_ids", "labels"}


def test_text_is_tokenised_again_in_every_epoch():
    tokenizer = train_tokenizer(TEXTS * 3, vocab_size=290, show_progress=False)
    pad = DataCollatorForSeq2Seq(tokenizer)
    plain = RetokenizingCollator(pad, *[BpeDropout(tokenizer, 0.0, seed=1)] * 2)(examples(tokenizer))
    for name, tensor in TokenColumns(pad)(examples(tokenizer)).items():
        assert torch.equal(plain[name], tensor)
    splits = []
    for _ in range(2):  # two runs
        noisy = RetokenizingCollator(pad, *[BpeDropout(tokenizer, 0.5, seed=1)] * 2, seed=1)
        for epoch in range(20):
            noisy.set_epoch(epoch)
            splits.append(tuple(noisy(examples(tokenizer))["input_ids"][0].tolist()))
    assert splits[:20] == splits[20:]
    assert len(set(splits)) > 1
    assert {tokenizer.decode(ids, skip_special_tokens=True) for ids in splits} == {TEXTS[0]}
