"""Configs that are read without transformers say what the library's say."""

import json

import pytest
from transformers import AutoConfig, GenerationConfig

from vanilla_transformer.converters.to_ctranslate2 import can_export_saved
from vanilla_transformer.hub.saved_files import BUNDLED, find_file, read_config
from vanilla_transformer.models.search_options import LIBRARY_DEFAULTS, REFUSED
from vanilla_transformer.models.searches import SEARCHES, all_options
from vanilla_transformer.models.variants import MODELS


@pytest.mark.parametrize("model_type", MODELS)
def test_a_config_is_saved_whole(model_type, tmp_path):
    """So nobody who reads the file needs to know a default."""
    config = AutoConfig.for_model(model_type)
    config.save_pretrained(tmp_path)
    assert type(config).__annotations__.keys() <= vars(read_config(tmp_path)).keys()


@pytest.mark.parametrize("name", BUNDLED)
def test_the_bundled_configs_say_all_that_a_conversion_reads(name):
    assert can_export_saved(read_config(name))


def test_a_file_without_a_field_has_none(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vanilla_transformer", "target_vocab_size": 7}))
    config = read_config(tmp_path)
    assert (config.d_model, config.target_vocab_size) == (None, 7)
    assert not can_export_saved(config)


def test_the_librarys_defaults_are_known():
    library = GenerationConfig()._get_default_generation_params()
    compared = {*LIBRARY_DEFAULTS, *REFUSED, *all_options()}
    assert {name: library[name] for name in compared if library.get(name) is not None} == LIBRARY_DEFAULTS
    assert SEARCHES


def test_missing_files_get_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"can't be loaded \(there is no config.json\): give a folder"):
        read_config(tmp_path)
    with pytest.raises(ValueError, match=r"can't be loaded \(there is no such folder\)"):
        read_config(tmp_path / "a" / "b")
    assert find_file(tmp_path, "README.md", required=False) is None
