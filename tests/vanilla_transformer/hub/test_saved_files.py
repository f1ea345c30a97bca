"""Configs that are read without transformers say what the library's say."""

import json

import pytest
from transformers import AutoConfig, GenerationConfig

from vanilla_transformer.hub.saved_files import SavedConfig, default_fields, find_file, read_config
from vanilla_transformer.models.auto_map import MODELS
from vanilla_transformer.models.search_options import LIBRARY_DEFAULTS, REFUSED, SEARCHES, all_options


@pytest.mark.parametrize("model_type", MODELS)
def test_the_defaults_are_those_of_the_class(model_type):
    config = AutoConfig.for_model(model_type)
    defaults = default_fields(model_type)
    own = type(config).__annotations__.keys()
    assert own <= defaults.keys()
    assert {name: getattr(config, name) for name in defaults} == defaults


def test_a_file_without_a_field_has_its_default(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vanilla_transformer", "target_vocab_size": 7}))
    config = read_config(tmp_path)
    assert (config.d_model, config.output_vocab_size, config.norm_placement) == (512, 7, "post")
    with pytest.raises(AttributeError, match="no field 'layers'"):
        _ = config.layers


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
    assert SavedConfig({"model_type": "marian"}).model_type == "marian"
