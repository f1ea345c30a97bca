"""The languages of a model: recorded in any config, read from OPUS-MT's tokenizers, and never contradicted."""

import json
from pathlib import Path

import pytest
from transformers import MarianConfig, T5Config

from vanilla_transformer import Translator, VanillaTransformerConfig
from vanilla_transformer.hub.languages import (
    Languages,
    agreed_languages,
    differ,
    languages_of,
    load_languages,
    record_languages,
)


@pytest.mark.parametrize("config_class", [VanillaTransformerConfig, MarianConfig, T5Config])
def test_any_config_records_languages(config_class, tmp_path):
    config = config_class()
    assert languages_of(config) == (None, None)
    assert not languages_of(config)
    record_languages(config, Languages("en", "de"))
    config.save_pretrained(tmp_path)
    assert load_languages(tmp_path) == languages_of(config) == ("en", "de")
    record_languages(config, Languages(None, "fr"))
    assert languages_of(config) == ("en", "fr")


def test_the_tokenizer_of_opus_mt_knows_them_too(tmp_path):
    MarianConfig().save_pretrained(tmp_path)
    assert load_languages(tmp_path) == (None, None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"source_lang": "eng", "target_lang": "deu"}))
    assert load_languages(tmp_path) == ("eng", "deu")


def test_options_win_over_nothing_and_must_not_contradict_the_model():
    recorded = Languages("en", "fr")
    assert agreed_languages(Languages(), recorded, "m") == ("en", "fr")
    assert agreed_languages(Languages("en_GB", "fr"), recorded, "m") == ("en_GB", "fr")
    assert agreed_languages(Languages("en", "de"), Languages(), "m") == ("en", "de")
    with pytest.raises(ValueError, match="target_lang is 'de', but m translates en-fr: leave out target_lang"):
        agreed_languages(Languages(None, "de"), recorded, "m")


def test_only_names_of_the_same_kind_can_differ():
    for pair in (("de", "fr"), ("deu", "fra"), ("german", "french")):
        assert differ(*pair)
    for pair in (("de", "de_AT"), ("DE", "de"), ("deu", "de"), ("german", "de")):
        assert not differ(*pair)


def test_the_bundled_model_knows_its_languages():
    folder = Path(__file__).parents[3] / "model_cards" / "multi30k-en-de-tiny"
    assert load_languages(folder) == Translator.from_pretrained(folder).languages == ("en", "de")
