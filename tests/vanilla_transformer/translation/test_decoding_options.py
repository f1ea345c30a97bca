"""Options that are given come first, then those of the model, then the defaults of its search."""

from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

from vanilla_transformer.models import mask_predict_search as mask_predict
from vanilla_transformer.models.beam_search import DEFAULT_EXTRA_TOKENS
from vanilla_transformer.translation.decoding_options import (
    PAPER_DECODING,
    max_output_length,
    require_decoding,
    sampling_options,
    search_options,
    set_decoding,
    with_defaults,
)


def model_with(config: GenerationConfig, **attributes):
    """All that the options need of a model: its generation config and, if it names one, its search."""
    return SimpleNamespace(generation_config=config, **attributes)


def test_a_model_without_settings_is_decoded_as_in_the_paper():
    model = model_with(GenerationConfig(num_beams=None, length_penalty=None))
    assert with_defaults(model) == PAPER_DECODING == {"num_beams": 4, "length_penalty": 0.6}
    assert with_defaults(model, num_beams=None, top_k=3) == {**PAPER_DECODING, "top_k": 3}


def test_given_options_come_before_those_of_the_model():
    model = model_with(GenerationConfig(num_beams=7, length_penalty=1.5))
    assert with_defaults(model) == {"num_beams": 7, "length_penalty": 1.5}
    assert with_defaults(model, num_beams=2) == {"num_beams": 2, "length_penalty": 1.5}
    assert with_defaults(model, num_beams=None, length_penalty=0.0) == {"num_beams": 7, "length_penalty": 0.0}


def test_a_greedy_search_gets_its_penalty_under_a_name_that_the_library_does_not_warn_about():
    model = model_with(GenerationConfig(num_beams=5, length_penalty=0.9))
    assert search_options(model) == {"num_beams": 5, "length_penalty": 0.9, "do_sample": False}
    greedy = {"num_beams": 1, "length_penalty": 1.0, "alpha": 0.9, "do_sample": False}
    assert search_options(model, num_beams=1) == greedy


def test_samples_are_drawn_without_a_beam_unless_one_is_given():
    assert sampling_options(top_k=5) == {"top_k": 5, "do_sample": True, "num_beams": 1, "length_penalty": 1.0}
    assert sampling_options(num_beams=None, length_penalty=0.6)["length_penalty"] == 1.0
    assert sampling_options(num_beams=3, length_penalty=0.6) == {
        "num_beams": 3,
        "length_penalty": 0.6,
        "do_sample": True,
    }


def test_a_translation_may_be_fifty_tokens_longer_than_its_source_or_as_long_as_the_model_allows():
    assert DEFAULT_EXTRA_TOKENS == 50
    assert max_output_length(7) == 1 + 7 + 50
    assert max_output_length(7, 4, max_extra_tokens=2) == 13
    assert max_output_length(7, 4, longest_sequence=10) == 10
    assert max_output_length(7, longest_sequence=100) == 58


def test_decoding_settings_can_be_saved_with_a_model(tmp_path):
    for options in ({"num_beams": 5, "length_penalty": 1.1}, {"num_beams": 1}):
        config = GenerationConfig()
        set_decoding(model_with(config), **options)
        config.save_pretrained(tmp_path)
        loaded = model_with(GenerationConfig.from_pretrained(tmp_path))
        assert with_defaults(loaded) == {**PAPER_DECODING, **options}


def test_another_search_has_its_own_options_and_defaults(tmp_path):
    config = GenerationConfig()
    model = model_with(config, search_name="mask_predict")
    assert with_defaults(model, num_beams=None) == mask_predict.DEFAULTS
    assert search_options(model, iterations=3) == {**mask_predict.DEFAULTS, "iterations": 3, "do_sample": False}
    set_decoding(model, iterations=4)
    config.save_pretrained(tmp_path)
    loaded = model_with(GenerationConfig.from_pretrained(tmp_path), search_name="mask_predict")
    assert with_defaults(loaded) == {**mask_predict.DEFAULTS, "iterations": 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "num_beams=0 must be a whole number of 1"),
        ({"num_beams": True}, "num_beams=True must be a whole number of 1"),
        ({"num_beams": 2.0}, "num_beams=2.0 must be a whole number of 1"),
        ({"length_penalty": 11}, "length_penalty=11 must lie between -10 and 10"),
        ({"length_penalty": "high"}, "length_penalty='high' must lie between -10 and 10"),
        ({"iterations": 0}, "iterations=0 must be a whole number of 1 or more"),
        ({"length_candidates": 2.5}, "length_candidates=2.5 must be a whole number of 1 or more"),
        ({"length_ratio": 0}, "length_ratio=0 must lie between 0.1 and 10"),
        ({"length_ratio": float("nan")}, "length_ratio=nan must lie between 0.1 and 10"),
        ({"length_alpha": "long"}, "length_alpha='long' must lie between 0 and 10"),
        ({"max_extra_tokens": -1}, "max_extra_tokens=-1 must be a whole number of 0 or more"),
    ],
)
def test_impossible_values_are_refused(options, message):
    require_decoding()
    with pytest.raises(ValueError, match=message):
        require_decoding(**options)
