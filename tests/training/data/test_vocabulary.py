"""Vocabularies of several languages: whole characters, tags, and more subwords for a vocabulary that there is."""

import pytest
from datasets import ClassLabel, Dataset
from transformers import AutoTokenizer

from vanilla_transformer.models.tokenization_vanilla_transformer import (
    language_tags,
    train_tokenizer,
    with_language_tags,
)
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.data.demo_corpus import demo_corpus
from vanilla_transformer.training.data.vocabulary import (
    extend_vocabulary,
    extended,
    learn_vocabularies,
    tokens_per_word,
)


ENGLISH = [pair["en"] for pair in demo_corpus("test", 300)]
GERMAN = [pair["de"] for pair in demo_corpus("test", 300)]
CHINESE = ["我喜欢猫。", "你好吗？", "他在家里看书。", "今天天气很好。"]


def corpus(**texts: list[str]) -> Dataset:
    """A corpus of English with each of the texts, in both directions."""
    label = ClassLabel(names=[name for code in texts for name in (f"en-{code}", f"{code}-en")])
    rows = []
    for number, text in enumerate(texts.values()):
        for source, target in zip(ENGLISH, text, strict=False):
            rows += [{"source": source, "target": target, "direction": 2 * number}]
            rows += [{"source": target, "target": source, "direction": 2 * number + 1}]
    return Dataset.from_list(rows).cast_column("direction", label)


def test_characters_of_a_small_language_are_whole(tmp_path):
    text = corpus(de=GERMAN, zh=CHINESE)
    for coverage, folder in ((None, "whole"), (0.0, "bytes")):
        options = VocabularyArguments(vocab_size=450, character_coverage=coverage, vocabulary_temperature=1)
        assert learn_vocabularies(text, options, tmp_path / folder) == [450], "the tags are counted"
    whole, in_bytes = (AutoTokenizer.from_pretrained(tmp_path / folder) for folder in ("whole", "bytes"))
    assert list(language_tags(whole)) == ["de", "en", "zh"]
    for line in (*CHINESE, ENGLISH[0], GERMAN[0], "Ünïcödé 🙂 漢"):
        assert whole.decode(whole(line)["input_ids"], skip_special_tokens=True) == line
    report = tokens_per_word(text, whole)
    assert report["zh"]["counted in"] == "characters"
    assert report["zh"]["tokens each"] <= 1.3  # the space in front may be a token
    assert report["zh"]["parts of characters"] == "0.00%"
    assert tokens_per_word(text, in_bytes)["zh"]["parts of characters"] != "0.00%"


def test_more_subwords_leave_the_ids_of_the_others(tmp_path):
    tokenizer = with_language_tags(train_tokenizer(ENGLISH, vocab_size=500, show_progress=False), ["de", "fr"])
    longer = extended(tokenizer, GERMAN, 100)
    longer = with_language_tags(longer, ["es"])
    longer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded) == len(tokenizer) + 101
    assert tokenizer.get_vocab().items() <= loaded.get_vocab().items()
    assert sorted(loaded.get_vocab().values()) == list(range(len(loaded)))
    before, after = (sum(map(len, each(GERMAN)["input_ids"])) for each in (tokenizer, loaded))
    assert after < 0.8 * before
    for line in GERMAN[:20]:
        assert loaded.decode(loaded(line)["input_ids"], skip_special_tokens=True) == line
    assert loaded(">>fr<< " + ENGLISH[0])["input_ids"][0] == tokenizer.convert_tokens_to_ids(">>fr<<")


def test_subwords_are_learned_from_the_new_languages_alone(tmp_path):
    tokenizer = train_tokenizer(ENGLISH, vocab_size=400, show_progress=False)
    options = VocabularyArguments(added_subwords=20, min_frequency=1)
    extend_vocabulary(corpus(de=GERMAN, zh=CHINESE), tokenizer, options, tmp_path, known=iter(["en", "de"]))
    new = AutoTokenizer.from_pretrained(tmp_path).get_vocab().keys() - tokenizer.get_vocab().keys()
    text = "".join(CHINESE)
    decoded = [tokenizer.backend_tokenizer.decoder.decode(["a", token]).removeprefix("a").strip() for token in new]
    whole = [each for each in decoded if "\ufffd" not in each]
    assert len(whole) > 20
    assert all(each in text for each in whole)


def test_capitals_of_a_new_language_that_a_vocabulary_does_not_mark_are_named(tmp_path, caplog):
    czech = ["Čau, Řehoři.", "Šel domů.", "Ano."]
    options = VocabularyArguments(added_subwords=5, min_frequency=1)
    cases = [({"capitals": "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}, 1), ({}, 0), ({"lowercase": True}, 0)]
    for number, (case, warnings) in enumerate(cases):
        tokenizer = train_tokenizer(ENGLISH, vocab_size=400, show_progress=False, **case)
        caplog.clear()
        extend_vocabulary(corpus(cs=czech), tokenizer, options, tmp_path / str(number), known=["en"])
        assert len(caplog.records) == warnings
        assert not warnings or "no capitals Č, Ř, Š: they are read as small letters" in caplog.text


def test_characters_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"vocab_size=270 .* character_coverage"):
        learn_vocabularies(corpus(zh=CHINESE), VocabularyArguments(vocab_size=270), tmp_path)
