"""A tokenizer without transformers has the ids and the texts of the library's, or is left to the library."""

import json

import pytest
from transformers import AutoTokenizer

from tests.small_models import write_opus_folder
from vanilla_transformer.hub.saved_files import find_model
from vanilla_transformer.hub.saved_tokenizer import read_tokenizers
from vanilla_transformer.models.tokenization_vanilla_transformer import (
    language_tags,
    save_tokenizers,
    train_tokenizer,
    with_language_tags,
    with_mask_token,
)


TEXTS = [
    "A dog runs.",
    "two  spaces ",
    "",
    "ﬁ ½ é é",
    "日本語 😀",
    "</s> <pad> is text",
    ">>de<< A dog",
    ">>xx<< hm",
    "\n",
]


def assert_same(tokenizer, library):
    rows = [library(text)["input_ids"] for text in TEXTS]
    assert [tokenizer(text)["input_ids"] for text in TEXTS] == rows
    plain = [library(text_target=text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    assert [tokenizer(text_target=text, add_special_tokens=False)["input_ids"] for text in TEXTS] == plain
    for skip in (True, False):
        padded = [[library.bos_token_id, *row, library.pad_token_id] for row in rows]
        texts = library.batch_decode(padded, skip_special_tokens=skip)
        assert tokenizer.batch_decode(padded, skip_special_tokens=skip) == texts
        assert [tokenizer.decode(row, skip_special_tokens=skip) for row in padded] == texts
    assert tokenizer.get_vocab() == library.get_vocab()
    assert language_tags(tokenizer) == language_tags(library)
    assert sorted(tokenizer.all_special_ids) == sorted(library.all_special_ids)
    assert (tokenizer.eos_token_id, tokenizer.unk_token) == (library.eos_token_id, library.unk_token)
    assert tokenizer.convert_ids_to_tokens(9) == library.convert_ids_to_tokens(9)


@pytest.mark.parametrize("algorithm", ["bpe", "wordpiece", "unigram"])
def test_every_kind_that_is_trained_here(tmp_path, algorithm):
    options = {"vocab_size": 560, "min_frequency": 1, "show_progress": False, "algorithm": algorithm}
    source = with_language_tags(train_tokenizer(TEXTS, lowercase=True, **options), ["de", "fr"])
    target = with_mask_token(train_tokenizer(TEXTS[:2], normalization="nfkc", **options))
    save_tokenizers(tmp_path, source, target)
    found = read_tokenizers(tmp_path)
    assert found is not None
    assert_same(found[0], AutoTokenizer.from_pretrained(tmp_path))
    assert_same(found[1], AutoTokenizer.from_pretrained(tmp_path / "target"))


def test_the_bundled_one():
    (tokenizer, target) = read_tokenizers("multi30k-en-de-tiny") or pytest.fail("left to the library")
    assert target is None
    assert_same(tokenizer, AutoTokenizer.from_pretrained(find_model("multi30k-en-de-tiny")))


def test_what_only_the_library_can_read_is_left_to_it(tmp_path):
    assert read_tokenizers(write_opus_folder(tmp_path)) is None
    train_tokenizer(TEXTS, vocab_size=560, show_progress=False).save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    changes = ({"tokenizer_class": "T5Tokenizer"}, {"clean_up_tokenization_spaces": True}, {"add_prefix_space": True})
    for change in (*changes, {"mask_token": "<new>"}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, **change}))
        assert read_tokenizers(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert read_tokenizers(tmp_path) is not None
