import torch
from transformers import DataCollatorForSeq2Seq

from vanilla_transformer.tokenization_vanilla_transformer import train_tokenizer, with_bpe_dropout
from vanilla_transformer.training.collators import RetokenizingCollator, TokenColumns


TEXTS = ["the cat sleeps in the garden", "a dog sleeps"]


def examples(tokenizer):
    return [{"source": text, "target": text[::-1], **tokenizer(text, text_target=text[::-1])} for text in TEXTS]


def test_only_token_columns_reach_the_padding():
    tokenizer = train_tokenizer(TEXTS, vocab_size=280, min_frequency=1, show_progress=False)
    batch = TokenColumns(DataCollatorForSeq2Seq(tokenizer))(examples(tokenizer))
    assert set(batch) == {"input_ids", "attention_mask", "labels"}
    assert (batch["labels"] == -100).any()


def test_text_is_tokenised_again_in_every_epoch():
    tokenizer = train_tokenizer(TEXTS * 3, vocab_size=290, show_progress=False)
    pad = DataCollatorForSeq2Seq(tokenizer)
    plain = RetokenizingCollator(pad, tokenizer, tokenizer)(examples(tokenizer))
    assert torch.equal(plain["input_ids"], TokenColumns(pad)(examples(tokenizer))["input_ids"])
    noisy = RetokenizingCollator(pad, *[with_bpe_dropout(tokenizer, 0.5)] * 2)
    cuts = {tuple(noisy(examples(tokenizer))["input_ids"][0].tolist()) for _ in range(20)}
    assert len(cuts) > 1
    assert {tokenizer.decode(cut, skip_special_tokens=True) for cut in cuts} == {TEXTS[0]}
