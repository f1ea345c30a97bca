import json

import pytest
from transformers import AutoConfig

from vanilla_transformer import PRESETS, VanillaTransformerConfig


def test_the_defaults_are_the_base_model_of_table_3():
    config = VanillaTransformerConfig()
    assert (config.encoder_layers, config.decoder_layers) == (6, 6)
    assert (config.encoder_attention_heads, config.decoder_attention_heads) == (8, 8)
    assert (config.d_model, config.encoder_ffn_dim, config.decoder_ffn_dim) == (512, 2048, 2048)
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.1, 0.0, 0.0)
    assert config.label_smoothing == 0.1
    assert config.activation_function == "relu"
    assert config.norm_placement == "post"
    assert config.position_encoding == "sinusoidal"
    assert config.scale_embedding
    assert config.tie_word_embeddings
    assert config.shares_embeddings


def test_every_row_of_table_3_has_a_preset():
    rows = {name[0] for name in PRESETS if name[1] == "-"}
    assert rows == set("ABCDE")
    assert {"base", "big", "tiny"} <= PRESETS.keys()


def test_a_preset_takes_overrides():
    config = VanillaTransformerConfig.from_preset("big", vocab_size=123, dropout=0.2)
    assert (config.d_model, config.vocab_size, config.dropout) == (1024, 123, 0.2)
    assert PRESETS["big"]["dropout"] == 0.3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: VanillaTransformerConfig.from_preset("bigg"),
            r"no preset 'bigg'.*did you mean 'big'.*base.*tiny",
        ),
        (lambda: VanillaTransformerConfig.from_preset("base", vocabsize=3), r"'vocabsize'.*did you mean 'vocab_size'"),
        (lambda: VanillaTransformerConfig.from_preset("base", banana=3), r"'banana' is not a field"),
        (lambda: VanillaTransformerConfig(encoder_layer=2), r"encoder_layer=2.*did you mean 'encoder_layers'"),
        (lambda: VanillaTransformerConfig(d_modle=2), r"d_modle=2.*did you mean 'd_model'"),
        (lambda: VanillaTransformerConfig(vocab_size=0), r"vocab_size=0 must be greater than 0"),
        (lambda: VanillaTransformerConfig(d_k=-1, d_v=8), r"d_k=-1 must be greater than 0"),
        (lambda: VanillaTransformerConfig(dropout=1.0), r"dropout=1.0 must be at least 0 and less than 1"),
        (lambda: VanillaTransformerConfig(label_smoothing=-0.1), r"label_smoothing=-0.1 must be"),
        (lambda: VanillaTransformerConfig(d_model=100), r"d_model=100 can't be divided.*encoder_attention_heads=8"),
        (lambda: VanillaTransformerConfig(d_model=9, d_k=8, d_v=8), r"d_model=9 is odd.*learned"),
        (
            lambda: VanillaTransformerConfig(norm_placement="mid"),
            r"norm_placement='mid' is unknown: .*pre, rev",
        ),
        (
            lambda: VanillaTransformerConfig(position_encoding="lerned"),
            r"'lerned'.*did you mean 'learned'.*sinusoidal",
        ),
        (lambda: VanillaTransformerConfig(score_function="x"), r"score_function='x' is unknown.*scaled_dot"),
        (lambda: VanillaTransformerConfig(attention_pattern="x"), r"attention_pattern='x' is unknown.*full"),
        (lambda: VanillaTransformerConfig(activation_function="rellu"), r"'rellu'.*did you mean 'relu'"),
        (lambda: VanillaTransformerConfig(d_model="512"), r"d_model.*expected int.*'512'"),
        (lambda: VanillaTransformerConfig(vocab_size=5, eos_token_id=5), r"eos_token_id=5.*0 to 4.*tokenizer"),
        (lambda: VanillaTransformerConfig(eos_token_id=[2, 40000]), r"eos_token_id=40000.*0 to 36999"),
        (lambda: VanillaTransformerConfig(target_vocab_size=2), r"eos_token_id=2.*0 to 1"),
        (
            lambda: VanillaTransformerConfig(target_vocab_size=50, share_encoder_decoder_embeddings=True),
            r"target_vocab_size=50.*leave out",
        ),
        (
            lambda: VanillaTransformerConfig(tie_word_embeddings=False, share_encoder_decoder_embeddings=True),
            r"needs tie_word_embeddings=True",
        ),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_a_remedy(call, message):
    with pytest.raises(Exception, match=f"(?s){message}"):
        call()


def test_keywords_of_other_models_and_versions_are_kept():
    # A config file may hold more than this version knows; the library keeps it, and so must we.
    config = VanillaTransformerConfig(layer_norm_epsilon=1e-3, some_future_field=1, encoder_layerdrop=0.0)
    assert (config.layer_norm_epsilon, config.some_future_field) == (1e-3, 1)


@pytest.mark.parametrize("preset", PRESETS)
def test_save_and_load_keep_every_field(preset, tmp_path):
    config = VanillaTransformerConfig.from_preset(preset, vocab_size=99)
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    for field in VanillaTransformerConfig.__annotations__:
        assert getattr(loaded, field) == getattr(config, field), field
    assert loaded.to_diff_dict() == config.to_diff_dict()  # `auto_map` included


def test_json_may_hold_an_integer_for_a_float(tmp_path):
    VanillaTransformerConfig().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "dropout": 0, "label_smoothing": 0}))
    assert VanillaTransformerConfig.from_pretrained(tmp_path).dropout == 0


def test_a_separate_target_vocabulary_of_the_same_size_shares_no_embedding():
    assert not VanillaTransformerConfig(vocab_size=50, target_vocab_size=50).shares_embeddings
    assert VanillaTransformerConfig(vocab_size=50, decoder_vocab_size=60).output_vocab_size == 60
