"""No config field is lost in a conversion: each is converted with the same logits, or refused by name."""

from dataclasses import fields

import pytest
import torch
from tokenizers import Tokenizer, models
from torch.testing import assert_close
from transformers import PreTrainedTokenizerFast

from vanilla_transformer import RnnSearchConfig, RnnSearchForConditionalGeneration, VanillaTransformerConfig
from vanilla_transformer.converters.from_and_to_marian import UNDERSTOOD as UNDERSTOOD_BY_MARIAN
from vanilla_transformer.converters.from_and_to_marian import config_to_marian, to_marian
from vanilla_transformer.converters.supported_models import OUTSIDE_THE_NETWORK, PLAIN, require_understood
from vanilla_transformer.converters.to_ctranslate2 import UNDERSTOOD as UNDERSTOOD_BY_CTRANSLATE2
from vanilla_transformer.converters.to_ctranslate2 import export
from vanilla_transformer.models.variants import POSITIONS


# Another valid value than the small config's for each field.
OTHER_VALUES = {
    "transformers_version": "5.0.0",
    "architectures": ["Mine"],
    "output_hidden_states": True,
    "return_dict": False,
    "dtype": "float32",
    "chunk_size_feed_forward": 2,
    "is_encoder_decoder": False,
    "id2label": {0: "a"},
    "label2id": {"a": 0},
    "problem_type": "regression",
    "vocab_size": 29,
    "target_vocab_size": 31,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 20,
    "d_k": 8,
    "d_v": 8,
    "activation_function": "gelu",
    "dropout": 0.3,
    "attention_dropout": 0.3,
    "activation_dropout": 0.3,
    "label_smoothing": 0.3,
    "norm_placement": "pre",
    "position_encoding": "learned",
    "relative_attention_num_buckets": 16,
    "relative_attention_max_distance": 64,
    "score_function": "dot",
    "key_projection": "shared",
    "max_position_embeddings": 48,
    "scale_embedding": False,
    "initializer": "glorot",
    "initializer_gain": 0.5,
    "layer_norm_eps": 1e-2,
    "share_encoder_decoder_embeddings": False,
    "tie_word_embeddings": False,
    "output_bias": True,
    "use_cache": False,
    "pad_token_id": 4,
    "bos_token_id": 4,
    "eos_token_id": 4,
    "decoder_start_token_id": 4,
    "alignment_layer": 1,
    "source_lang": "en",
    "target_lang": "de",
    "placeholders": 3,
}
REFUSED_BY_CTRANSLATE2 = {
    *("is_encoder_decoder", "d_k", "d_v", "score_function", "key_projection"),
    *("relative_attention_num_buckets", "relative_attention_max_distance"),
}
REFUSED_BY_MARIAN = {*REFUSED_BY_CTRANSLATE2, "norm_placement", "position_encoding", "layer_norm_eps"}
FIELDS = [field.name for field in fields(VanillaTransformerConfig)]


@pytest.fixture
def model_with(make_model):
    """Builds a model with another value in one field, and weights that hide nothing.

    A field that this file does not know is set after the model is built: its value may name something that does not
    exist. It must be refused.
    """

    def build(field: str | None):
        known = field in OTHER_VALUES
        model = make_model(**({field: OTHER_VALUES[field]} if known else {}))
        for name, tensor in model.state_dict().items():
            tensor.normal_(mean=float("norm.weight" in name), std=0.3)
        if field is not None and not known:
            model.config.__dict__[field] = "another value"
        return model

    return build


@pytest.fixture
def pairs():
    """Sources and targets without padding and special tokens."""
    return {"sources": torch.randint(5, 23, (3, 7)), "targets": torch.randint(5, 23, (3, 6))}


@torch.no_grad()
def log_probabilities(model, sources: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    model.config.return_dict = True
    start = torch.full((len(targets), 1), model.config.decoder_start_token_id)
    read = torch.cat([start, targets], dim=1)
    return model(input_ids=sources, decoder_input_ids=read).logits.log_softmax(-1)


def test_another_type_of_model_is_refused_by_name():
    config = RnnSearchConfig()
    for understood, target in ((UNDERSTOOD_BY_MARIAN, "MarianMT"), (UNDERSTOOD_BY_CTRANSLATE2, "CTranslate2")):
        with pytest.raises(ValueError, match=f"model_type='rnn_search' can't become {target}"):
            require_understood(config, understood, target)
    model = RnnSearchForConditionalGeneration(RnnSearchConfig(vocab_size=300, hidden_size=8, attention_size=8))
    with pytest.raises(ValueError, match="model_type='rnn_search' can't become MarianMT"):
        to_marian(model)


def test_every_field_is_tried():
    assert OTHER_VALUES.keys() <= set(FIELDS)
    default = VanillaTransformerConfig()
    assert not [name for name, value in OTHER_VALUES.items() if getattr(default, name) == value]


@pytest.mark.parametrize("field", FIELDS)
def test_marian_gives_the_same_logits_or_refuses_the_field(model_with, pairs, field):
    model = model_with(field)
    if field in REFUSED_BY_MARIAN or field not in OTHER_VALUES:
        with pytest.raises(ValueError, match=f"^{field}=.* can't become MarianMT"):
            to_marian(model)
        return
    assert_close(log_probabilities(to_marian(model), **pairs), log_probabilities(model, **pairs), rtol=0, atol=1e-4)


def tokenizer_of(size: int) -> PreTrainedTokenizerFast:
    """The token with id 7 is "t7"."""
    vocabulary = {f"t{token_id}": token_id for token_id in range(size)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(vocabulary, "t3")), unk_token="t3")


def assert_same_in_ctranslate2(model, pairs, folder) -> None:
    """Compares the log-probabilities of the targets and of the end of sentence."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    tokenizer, target_tokenizer = map(tokenizer_of, (model.config.vocab_size, model.config.output_vocab_size))
    export(model, tokenizer, folder, target_tokenizer=target_tokenizer)
    sources, targets = ([[f"t{token_id}" for token_id in row] for row in side.tolist()] for side in pairs.values())
    scores = ctranslate2.Translator(str(folder), intra_threads=1).score_batch(sources, targets)
    ends = torch.full((len(targets), 1), model.config.eos_token_id)
    scored = torch.cat([pairs["targets"], ends], dim=1)[..., None]
    expected = log_probabilities(model, **pairs).gather(-1, scored).squeeze(-1)
    assert_close(torch.tensor([score.log_probs for score in scores]), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("field", FIELDS)
def test_ctranslate2_gives_the_same_probabilities_or_refuses_the_field(model_with, pairs, field, tmp_path):
    model = model_with(field)
    if field in REFUSED_BY_CTRANSLATE2 or field not in OTHER_VALUES:
        with pytest.raises(ValueError, match=f"{field}="):
            assert_same_in_ctranslate2(model, pairs, tmp_path)
    else:
        assert_same_in_ctranslate2(model, pairs, tmp_path)


@pytest.mark.parametrize("name", POSITIONS)
def test_every_position_encoding_is_converted_or_refused(model_with, pairs, name, tmp_path, monkeypatch):
    monkeypatch.setitem(OTHER_VALUES, "position_encoding", name)
    model = model_with("position_encoding")
    if name in ("sinusoidal", "sinusoidal_halves"):
        converted = log_probabilities(to_marian(model), **pairs)
        assert_close(converted, log_probabilities(model, **pairs), rtol=0, atol=1e-4)
    else:
        with pytest.raises(ValueError, match=f"^position_encoding='{name}' can't become MarianMT, which only has"):
            to_marian(model)
    if name.startswith("sinusoidal") or name in ("learned", "integer"):
        assert_same_in_ctranslate2(model, pairs, tmp_path)
    else:
        with pytest.raises(ValueError, match=f"^position_encoding='{name}' can't become a CTranslate2 model"):
            assert_same_in_ctranslate2(model, pairs, tmp_path)


@pytest.mark.parametrize("understood", [UNDERSTOOD_BY_MARIAN, UNDERSTOOD_BY_CTRANSLATE2])
def test_the_lists_name_fields_that_exist(understood):
    assert {*understood, *OUTSIDE_THE_NETWORK} <= {*FIELDS, "directions"}  # which only configs with several have


def test_the_papers_values_are_the_defaults():
    assert {name: getattr(VanillaTransformerConfig(), name) for name in PLAIN} == PLAIN
    assert {*FIELDS} <= {*PLAIN, *OUTSIDE_THE_NETWORK, *UNDERSTOOD_BY_CTRANSLATE2}


def test_a_field_that_is_added_later_is_refused_until_a_converter_understands_it(make_config):
    config = make_config()
    require_understood(config, UNDERSTOOD_BY_MARIAN, "MarianMT")
    config.__dict__["norm_placement"] = "sideways"
    with pytest.raises(ValueError, match=r"norm_placement='sideways' can't become X, which only has 'post': train"):
        require_understood(config, UNDERSTOOD_BY_MARIAN, "X")


def test_other_types_of_models_are_refused_by_name(make_model, tmp_path):
    class OtherConfig(VanillaTransformerConfig):
        model_type = "other_transformer"

    with pytest.raises(ValueError, match=r"model_type='other_transformer' can't become MarianMT: convert a model of"):
        config_to_marian(OtherConfig())
    model = make_model()
    model.config.__class__ = OtherConfig
    with pytest.raises(ValueError, match=r"model_type='other_transformer' can't become a CTranslate2 model"):
        export(model, None, tmp_path)
