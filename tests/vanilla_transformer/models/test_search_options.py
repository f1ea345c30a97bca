"""Options that are given come first, then those of the model, then the defaults of its search."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest
from transformers import GenerationConfig

from vanilla_transformer import PAPER_DECODING
from vanilla_transformer.models.mask_predict_options import MaskPredictOptions
from vanilla_transformer.models.search_options import BeamSearchOptions, SearchOptions, require_supported
from vanilla_transformer.models.searches import options_of, require_values, store_options


PAPER = BeamSearchOptions()
OURS = {"search": "vanilla_beam_search"}


def model_with(config: GenerationConfig, **attributes):
    """All that the options need of a model: its generation config and, if it has another one, its search."""
    return SimpleNamespace(generation_config=config, **attributes)


def test_a_model_without_settings_is_decoded_as_in_the_paper():
    assert PAPER_DECODING == {"num_beams": 4, "length_penalty": 0.6}
    assert asdict(PAPER) == {**PAPER_DECODING, "penalty": "gnmt", "max_extra_tokens": 50}
    assert options_of(model_with(GenerationConfig())) == PAPER
    assert options_of(model_with(GenerationConfig()), num_beams=None) == PAPER


def test_given_options_come_before_those_of_the_model():
    model = model_with(GenerationConfig(num_beams=7, length_penalty=1.5, max_extra_tokens=8, **OURS))
    assert options_of(model) == BeamSearchOptions(num_beams=7, length_penalty=1.5, max_extra_tokens=8)
    assert options_of(model, num_beams=2).num_beams == 2
    assert options_of(model, num_beams=None, length_penalty=0.0).length_penalty == 0.0


def test_a_config_without_the_name_of_our_search_means_what_the_library_means():
    """length^alpha for its length penalty. The library's defaults, which its trainer writes, count as unset."""
    model = model_with(GenerationConfig(num_beams=7, length_penalty=1.5))
    assert options_of(model) == BeamSearchOptions(num_beams=7, length_penalty=1.5, penalty="length")
    assert options_of(model, length_penalty=0.6) == BeamSearchOptions(num_beams=7, length_penalty=0.6)
    assert options_of(model, penalty="gnmt").penalty == "gnmt"
    written_by_the_trainer = GenerationConfig()
    written_by_the_trainer.update(**GenerationConfig._get_default_generation_params())
    assert options_of(model_with(written_by_the_trainer)) == PAPER
    greedy = GenerationConfig(num_beams=1, **OURS)
    assert options_of(model_with(greedy)).num_beams == 1


def test_the_name_of_another_search_is_refused():
    with pytest.raises(ValueError, match="names the search 'mask_predict', but SimpleNamespace has 'vanilla_beam"):
        options_of(model_with(GenerationConfig(search="mask_predict")))


def test_a_translation_may_be_fifty_tokens_longer_than_its_source_or_as_long_as_the_model_allows():
    assert SearchOptions().max_length(7) == 1 + 7 + 50
    assert SearchOptions(max_extra_tokens=2).max_length(7, 4) == 13
    assert SearchOptions().max_length(7, 4, positions=10) == 10
    assert SearchOptions().max_length(7, positions=100) == 58


def test_options_are_stored_with_a_model(tmp_path):
    for options in ({"num_beams": 5, "length_penalty": 1.1}, {"num_beams": 1}, {"penalty": "length"}):
        config = GenerationConfig.from_model_config(PretrainedLike())
        store_options(model_with(config, longest_sequence=None), **options)
        config.save_pretrained(tmp_path)
        loaded = GenerationConfig.from_pretrained(tmp_path)
        assert options_of(model_with(loaded)) == BeamSearchOptions(**options)
        assert loaded.search == "vanilla_beam_search"
        assert loaded.max_length == 1024  # else the library's trainer would store its default of 20


class PretrainedLike:
    """A model config as `GenerationConfig.from_model_config` reads it, which leaves its mark on the result."""

    def to_dict(self):
        return {}

    def get_text_config(self, **kwargs):
        return self


def test_another_search_has_its_own_options_and_defaults(tmp_path):
    model = model_with(GenerationConfig(), search_options=MaskPredictOptions)
    assert options_of(model, num_beams=None) == MaskPredictOptions()
    store_options(model, iterations=4)
    model.generation_config.save_pretrained(tmp_path)
    loaded = model_with(GenerationConfig.from_pretrained(tmp_path), search_options=MaskPredictOptions)
    assert options_of(loaded) == MaskPredictOptions(iterations=4)
    with pytest.raises(ValueError, match="num_beams is not an option of SimpleNamespace, which is decoded by mask_"):
        options_of(model, num_beams=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "num_beams=0 must be a whole number of 1 or more"),
        ({"num_beams": True}, "num_beams=True must be a whole number of 1 or more"),
        ({"num_beams": 2.0}, "num_beams=2.0 must be a whole number of 1 or more"),
        ({"length_penalty": 11}, "length_penalty=11 must lie between -10 and 10"),
        ({"length_penalty": "high"}, "length_penalty='high' must lie between -10 and 10"),
        ({"penalty": "none"}, "penalty='none' must be one of gnmt, length"),
        ({"iterations": 0}, "iterations=0 must be a whole number of 1 or more"),
        ({"length_candidates": 2.5}, "length_candidates=2.5 must be a whole number of 1 or more"),
        ({"length_ratio": 0}, "length_ratio=0 must lie between 0.1 and 10"),
        ({"length_ratio": float("nan")}, "length_ratio=nan must lie between 0.1 and 10"),
        ({"length_alpha": "long"}, "length_alpha='long' must lie between 0 and 10"),
        ({"max_extra_tokens": -1}, "max_extra_tokens=-1 must be a whole number of 0 or more"),
    ],
)
def test_impossible_values_are_refused(options, message):
    require_values()
    with pytest.raises(ValueError, match=message):
        require_values(**options)


def test_what_a_search_lacks_is_refused_in_calls_and_configs_alike():
    for name, value in {"num_beam_groups": 2, "diversity_penalty": 0.5, "penalty_alpha": 0.6}.items():
        config = GenerationConfig()
        with pytest.raises(ValueError, match=rf"{name}={value} is not supported"):
            require_supported(config, {name: value}, sample=False)
        setattr(config, name, value)
        with pytest.raises(ValueError, match=rf"{name}={value} in the generation config is not supported"):
            require_supported(config, {}, sample=False)
    with pytest.raises(ValueError, match="top_k=5 is for sampling and does nothing in a search: leave it out"):
        require_supported(GenerationConfig(), {"top_k": 5}, sample=False)
    require_supported(GenerationConfig(), {"temperature": 0.5, "top_k": 5}, sample=True)
    defaults = GenerationConfig._get_default_generation_params()
    require_supported(GenerationConfig(**defaults), {"num_beam_groups": 1}, sample=False)
