"""A copy of a model computes the same with the same tensors, and has its own config."""

from vanilla_transformer.converters.weight_sharing import copy_sharing_weights


def test_a_copy_has_the_same_tensors_and_its_own_config(make_model):
    model = make_model()
    model.register_buffer("extra", model.lm_head.weight.clone())
    copied = copy_sharing_weights(model)
    assert copied is not model
    assert [id(tensor) for tensor in copied.parameters()] == [id(tensor) for tensor in model.parameters()]
    assert copied.extra is model.extra
    assert copied.lm_head.weight is copied.model.decoder.embed_tokens.weight  # still tied
    copied.set_attn_implementation("eager")
    assert model.config._attn_implementation == "sdpa"
    assert model.model.encoder.layers[0].self_attn.config._attn_implementation == "sdpa"
    assert copied.model.encoder.layers[0].self_attn.config._attn_implementation == "eager"
