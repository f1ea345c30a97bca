"""New models of several architectures, and trained models to continue from."""

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.searches import store_options
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer, with_mask_token
from vanilla_transformer.training import train as train_script
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.build_model import make_config, make_model, needs_mask_token


def test_a_trained_model_keeps_its_shape(recipe, tmp_path):
    train_script.main(recipe(max_steps=2, eval_strategy="no"))
    start = ["--model_name_or_path", str(tmp_path / "run" / "model"), "--output_dir", str(tmp_path / "tuned")]
    with pytest.raises(SystemExit, match=r"model_config sets encoder_layers=2, but the trained model .* has 1"):
        train_script.main([*recipe(), *start, "--model_config", '{"encoder_layers": 2}'])
    with pytest.raises(SystemExit, match=r"model_config sets 'banana', which the model .* has no field of"):
        train_script.main([*recipe(), *start, "--model_config", '{"banana": 2}'])
    train_script.main([*recipe(max_steps=2, eval_strategy="no"), *start, "--model_config", '{"dropout": 0.3}'])
    config = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "tuned" / "model").config
    assert (config.dropout, config.encoder_layers) == (0.3, 1)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["a b c d e"], vocab_size=280, min_frequency=1, show_progress=False)


@pytest.fixture(scope="module")
def target_tokenizer():
    return train_tokenizer(["f g h i j k"], vocab_size=270, min_frequency=1, show_progress=False)


SMALL = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 16}


def test_a_new_model_is_the_one_its_class_makes(tokenizer):
    torch.manual_seed(5)
    built = make_model(ModelArguments(preset="tiny", model_config={**SMALL, "dropout": 0.3}), tokenizer)
    torch.manual_seed(5)
    config = VanillaTransformerConfig.from_preset("tiny", vocab_size=len(tokenizer), **SMALL, dropout=0.3)
    expected = VanillaTransformerForConditionalGeneration(config)
    assert type(built) is type(expected)
    assert built.config.to_dict() == expected.config.to_dict()
    store_options(expected)
    assert built.generation_config.to_dict() == expected.generation_config.to_dict()
    assert all(torch.equal(built.state_dict()[name], tensor) for name, tensor in expected.state_dict().items())


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [("marian", {**SMALL, "encoder_attention_heads": 2, "decoder_attention_heads": 2}), ("t5", {"d_model": 16})],
)
def test_special_ids_and_sizes_come_from_the_tokenizer(tokenizer, model_type, fields):
    model = make_model(ModelArguments(model_type=model_type, model_config=fields), tokenizer)
    assert model.config.model_type == model_type
    assert model.config.vocab_size == len(tokenizer)
    for settings in (model.config, model.generation_config):
        assert settings.pad_token_id == tokenizer.pad_token_id
        assert settings.eos_token_id == tokenizer.eos_token_id
        assert settings.decoder_start_token_id == tokenizer.bos_token_id
        assert getattr(settings, "forced_eos_token_id", None) in (None, tokenizer.eos_token_id)


def test_separate_vocabularies(tokenizer, target_tokenizer):
    ours = make_config(ModelArguments(preset="tiny"), tokenizer, target_tokenizer)
    assert (ours.vocab_size, ours.target_vocab_size) == (len(tokenizer), len(target_tokenizer))
    marian = make_config(ModelArguments(model_type="marian"), tokenizer, target_tokenizer)
    assert (marian.vocab_size, marian.decoder_vocab_size) == (len(tokenizer), len(target_tokenizer))
    assert not marian.share_encoder_decoder_embeddings
    with pytest.raises(ValueError, match=r"t5 has one vocabulary.*set separate to false"):
        make_config(ModelArguments(model_type="t5"), tokenizer, target_tokenizer)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model_type": "marrian"}, r"model_type='marrian' is not an encoder-decoder.*\(did you mean 'marian'\?\)"),
        ({"model_type": "bert"}, r"model_type='bert' is not an encoder-decoder"),
        ({"model_type": "vanila_transformer"}, r"did you mean 'vanilla_transformer'"),
        ({"model_type": "t5", "preset": "tiny"}, r"preset='tiny': model_type t5 has no presets"),
        ({"model_type": "t5", "model_config": {"d_modle": 3}}, r"'d_modle' is not a field of T5Config.*'d_model'"),
    ],
)
def test_an_architecture_that_cannot_be_built_is_named(tokenizer, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_config(ModelArguments(**arguments), tokenizer)


def test_a_trained_model_has_the_architecture_it_has(tmp_path, tokenizer):
    make_model(ModelArguments(preset="tiny", model_config=SMALL), tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    path = str(tmp_path)
    with pytest.raises(ValueError, match=r"model_type='t5', but the trained model .* is a vanilla_transformer"):
        make_model(ModelArguments(model_type="t5", model_name_or_path=path), tokenizer)
    assert make_model(ModelArguments(model_name_or_path=path), tokenizer).config.d_model == 16


# --- a model that predicts masks ---


@pytest.fixture
def teacher(tokenizer, tmp_path):
    """The folder of an autoregressive model."""
    model = make_model(ModelArguments(preset="tiny", model_config=SMALL), tokenizer)
    model.save_pretrained(tmp_path / "teacher")
    tokenizer.save_pretrained(tmp_path / "teacher")
    return str(tmp_path / "teacher")


def mask_arguments(**keys):
    fields = {**SMALL, "dropout": 0.0, **keys.pop("model_config", {})}
    return ModelArguments(model_type="mask_predict", preset="tiny", model_config=fields, **keys)


def test_the_mask_and_the_decoding_options_are_those_of_the_recipe(tokenizer):
    masking = with_mask_token(tokenizer)
    model = make_model(mask_arguments(iterations=4, length_candidates=3, length_alpha=1.5), masking)
    assert (model.config.mask_token_id, model.config.vocab_size) == (len(tokenizer), len(tokenizer) + 1)
    settings = model.generation_config
    assert (settings.iterations, settings.length_candidates, settings.length_alpha) == (4, 3, 1.5)
    assert needs_mask_token(mask_arguments())
    assert not needs_mask_token(ModelArguments())
    with pytest.raises(ValueError, match="num_beams is not an option of MaskPredictForConditionalGeneration"):
        make_model(mask_arguments(num_beams=4), masking)
    with pytest.raises(ValueError, match="iterations is not an option of VanillaTransformerForConditionalGeneration"):
        make_model(ModelArguments(preset="tiny", model_config=SMALL, iterations=4), tokenizer)


def test_a_new_model_starts_from_the_weights_of_another_type(tokenizer, teacher):
    model = make_model(mask_arguments(initialize_from=teacher), with_mask_token(tokenizer))
    for name, weight in AutoModelForSeq2SeqLM.from_pretrained(teacher).state_dict().items():
        assert torch.equal(model.state_dict()[name][: len(weight)], weight), name
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert model.lm_head.weight[-1].abs().sum() > 0, "<mask> has an embedding of its own"


def test_a_teacher_of_another_shape_is_refused(tokenizer, teacher):
    deeper = mask_arguments(initialize_from=teacher, model_config={"decoder_layers": 2})
    with pytest.raises(ValueError, match=r"has decoder_layers=1, but the new model has 2: set decoder_layers in"):
        make_model(deeper, with_mask_token(tokenizer))
    smaller = train_tokenizer(["a"], vocab_size=261, min_frequency=1, show_progress=False)
    with pytest.raises(ValueError, match="leave out tokenizer to use its vocabulary"):
        make_model(mask_arguments(initialize_from=teacher), with_mask_token(smaller))
    with pytest.raises(ValueError, match="give one of them"):
        mask_arguments(initialize_from=teacher, model_name_or_path=teacher)
