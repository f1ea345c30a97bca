"""Same weights, same numbers: against torch's own layers and against MarianMT, forward and backward."""

import math
from itertools import chain

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import MarianConfig, MarianMTModel


def data(parameter: nn.Parameter) -> torch.Tensor:
    return parameter.data


def gradient(parameter: nn.Parameter) -> torch.Tensor:
    return parameter.grad


def draw_weights(model: nn.Module) -> None:
    """Biases and norms must not hide behind zeros and ones."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)


def decoder_inputs(model, batch) -> dict[str, torch.Tensor]:
    """What the decoder reads, with a mask over its padding (the start token is not padding, whatever its id)."""
    ids = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    return {"decoder_input_ids": ids, "decoder_attention_mask": (batch["labels"] != -100).long()}


# --- torch.nn.Transformer ---


def torch_transformer(config, norm_first: bool) -> nn.Transformer:
    """torch's Transformer. It ends each stack in a norm whatever the order; the paper's post-norm model has none."""
    model = nn.Transformer(
        config.d_model,
        config.encoder_attention_heads,
        config.encoder_layers,
        config.decoder_layers,
        config.encoder_ffn_dim,
        dropout=0.0,
        batch_first=True,
        norm_first=norm_first,
    )
    if not norm_first:
        model.encoder.norm = model.decoder.norm = None
    return model.eval()


def attention_pairs(ours, theirs, of):
    """torch keeps the three input projections in one matrix."""
    for kind in ("weight", "bias"):
        projections = [of(getattr(getattr(ours, name), kind)) for name in ("q_proj", "k_proj", "v_proj")]
        yield from zip(projections, of(getattr(theirs, f"in_proj_{kind}")).chunk(3), strict=True)
        yield of(getattr(ours.out_proj, kind)), of(getattr(theirs.out_proj, kind))


def layer_pairs(ours, theirs, of):
    yield from attention_pairs(ours.self_attn, theirs.self_attn, of)
    modules = [(ours.self_attn_residual.norm, theirs.norm1)]
    if hasattr(ours, "encoder_attn"):
        yield from attention_pairs(ours.encoder_attn, theirs.multihead_attn, of)
        modules += [(ours.encoder_attn_residual.norm, theirs.norm2), (ours.feed_forward_residual.norm, theirs.norm3)]
    else:
        modules += [(ours.feed_forward_residual.norm, theirs.norm2)]
    modules += [(ours.feed_forward.fc1, theirs.linear1), (ours.feed_forward.fc2, theirs.linear2)]
    for mine, other in modules:
        yield from module_pairs(mine, other, of)


def module_pairs(ours, theirs, of):
    yield of(ours.weight), of(theirs.weight)
    yield of(ours.bias), of(theirs.bias)


def pairs(ours, theirs, of):
    """(ours, torch's) for every tensor of the two stacks, the tensor being `of(parameter)`."""
    for name in ("encoder", "decoder"):
        stack, other = getattr(ours.model, name), getattr(theirs, name)
        layers = zip(stack.layers, other.layers, strict=True)
        yield from chain.from_iterable(layer_pairs(mine, other_layer, of) for mine, other_layer in layers)
        if other.norm is not None:
            yield from module_pairs(stack.norm, other.norm, of)


def scaled_and_numbered(embedding: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Sections 3.4 and 3.5 by the formula, one position after another."""
    width = embedding.shape[1]
    vectors = []
    for position in range(ids.shape[1]):
        angles = [position / 10000 ** (2 * i / width) for i in range(width // 2)]
        encoding = torch.tensor([wave(angle) for angle in angles for wave in (math.sin, math.cos)])
        vectors.append(embedding[ids[:, position]] * math.sqrt(width) + encoding)
    return torch.stack(vectors, dim=1)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("norm_placement", ["post", "pre"])
def test_torch_transformer_with_the_same_weights_agrees(make_model, batch, norm_placement, attention):
    ours = make_model(norm_placement=norm_placement, attn_implementation=attention)
    draw_weights(ours)
    theirs = torch_transformer(ours.config, norm_first=norm_placement == "pre")
    for mine, other in pairs(ours, theirs, data):
        other.copy_(mine)
    embedding = ours.lm_head.weight.detach().clone().requires_grad_()

    target = decoder_inputs(ours, batch)
    source_padding, target_padding = batch["attention_mask"] == 0, target["decoder_attention_mask"] == 0
    expected = theirs(
        scaled_and_numbered(embedding, batch["input_ids"]),
        scaled_and_numbered(embedding, target["decoder_input_ids"]),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(target_padding.shape[1]).isinf(),
        src_key_padding_mask=source_padding,
        tgt_key_padding_mask=target_padding,
        memory_key_padding_mask=source_padding,
        tgt_is_causal=True,
    )
    expected = (expected @ embedding.T)[~target_padding]
    actual = ours(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **target).logits
    actual = actual[~target_padding]
    assert_close(actual, expected, rtol=1e-5, atol=1e-5)

    weighting = torch.randn_like(expected)
    (actual * weighting).sum().backward()
    (expected * weighting).sum().backward()
    for mine, other in pairs(ours, theirs, gradient):
        assert_close(mine, other, rtol=1e-4, atol=1e-4)
    # The padding row gets no gradient as an input of ours (padding_idx): compare the real tokens.
    assert_close(ours.lm_head.weight.grad[1:], embedding.grad[1:], rtol=1e-4, atol=1e-4)


# --- MarianMT ---

MARIAN_NAMES = {
    ".self_attn_residual.norm.": ".self_attn_layer_norm.",
    ".encoder_attn_residual.norm.": ".encoder_attn_layer_norm.",
    ".feed_forward_residual.norm.": ".final_layer_norm.",
    ".feed_forward.": ".",
}


def marian_name(name: str) -> str:
    for ours, theirs in MARIAN_NAMES.items():
        name = name.replace(ours, theirs)
    return name


def marian(config) -> MarianMTModel:
    shared = [
        *("vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim"),
        *("encoder_attention_heads", "decoder_attention_heads", "activation_function", "scale_embedding"),
        *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "max_position_embeddings"),
    ]
    fields = {name: getattr(config, name) for name in shared}
    return MarianMTModel(MarianConfig(**fields, forced_eos_token_id=None)).eval()


@pytest.mark.parametrize("activation_function", ["relu", "swish"])
@pytest.mark.parametrize("scale_embedding", [True, False])
def test_marian_with_the_same_weights_agrees(make_model, batch, activation_function, scale_embedding):
    ours = make_model(
        position_encoding="sinusoidal_halves",
        activation_function=activation_function,
        scale_embedding=scale_embedding,
        encoder_layers=3,
    )
    draw_weights(ours)
    theirs = marian(ours.config)
    state = {marian_name(name): tensor for name, tensor in ours.state_dict().items()}
    state["model.shared.weight"] = ours.lm_head.weight
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {
        "final_logits_bias",
        "model.encoder.embed_positions.weight",
        "model.decoder.embed_positions.weight",
    }

    inputs = {**batch, **decoder_inputs(ours, batch)}
    actual, expected = ours(**inputs), theirs(**inputs)
    assert_close(actual.logits, expected.logits, rtol=1e-5, atol=1e-5)
    assert_close(actual.loss, expected.loss, rtol=1e-6, atol=1e-6)

    actual.loss.backward()
    expected.loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    gradients["model.encoder.embed_tokens.weight"] = gradients.pop("model.shared.weight")
    for name, parameter in ours.named_parameters():
        assert_close(parameter.grad, gradients[marian_name(name)], rtol=1e-4, atol=1e-6)
