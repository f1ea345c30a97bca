"""fairseq checkpoints, converted, are the same network. The oracle is FSMT, transformers' port of fairseq's model."""

import argparse
import fractions

import pytest
import torch
from torch.testing import assert_close
from transformers import FSMTConfig, FSMTForConditionalGeneration

from vanilla_transformer.converters.from_fairseq import (
    model_from_fairseq,
    options_of,
    read_checkpoint,
    read_dictionary,
)


VOCAB_SIZE, SIZES = 24, {"embed_dim": 16, "ffn_embed_dim": 32, "layers": 2, "attention_heads": 4}


@pytest.fixture(scope="module")
def fsmt():
    torch.manual_seed(0)
    stacks = {f"{stack}_{name}": SIZES[name] for stack in ("encoder", "decoder") for name in ("layers",)}
    heads = {f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")}
    ffn = {f"{stack}_ffn_dim": 32 for stack in ("encoder", "decoder")}
    config = FSMTConfig(
        langs=["en", "de"],
        src_vocab_size=VOCAB_SIZE,
        tgt_vocab_size=VOCAB_SIZE,
        d_model=16,
        max_position_embeddings=64,
        scale_embedding=True,
        activation_function="relu",
        tie_word_embeddings=True,
        **{**stacks, **heads, **ffn},
    )
    model = FSMTForConditionalGeneration(config).eval()
    with torch.no_grad():  # biases and norms must not hide behind zeros and ones
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
        model.model.decoder.embed_tokens.weight.copy_(model.model.encoder.embed_tokens.weight)
    return model


def options(**changes) -> dict:
    sizes = {f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in SIZES.items()}
    stored = {"arch": "transformer_wmt_en_de", "share_all_embeddings": True, "source_lang": "en", "target_lang": "de"}
    return {**stored, **sizes, **changes}


def weights(fsmt) -> dict[str, torch.Tensor]:
    """The weights under fairseq's names, with what else its files hold."""
    state = {
        name.removeprefix("model."): tensor.clone()
        for name, tensor in fsmt.state_dict().items()
        if "embed_positions" not in name and not name.startswith("lm_head")
    }
    state.pop("decoder.output_projection.weight", None)
    state["decoder.output_projection.weight"] = state["decoder.embed_tokens.weight"]
    state |= {"encoder.version": torch.tensor([3.0]), "encoder.embed_positions._float_tensor": torch.zeros(1)}
    state |= {"encoder.layers.0.in_proj_weight": torch.zeros(48, 16), "encoder.layers.0.fc1_bias": torch.zeros(32)}
    return state


def old_weights(fsmt) -> dict[str, torch.Tensor]:
    """The same as fairseq wrote them until 0.6: one matrix for q, k and v, numbered norms, no output matrix."""
    state = weights(fsmt)
    del state["decoder.output_projection.weight"]
    for name in [name for name in state if ".q_proj." in name]:
        parts = [state.pop(name.replace(".q_proj.", f".{letter}_proj.")) for letter in "qkv"]
        state[name.replace(".q_proj.", ".in_proj_")] = torch.cat(parts)
    numbers = {
        "encoder": {"self_attn_layer_norm": 0, "final_layer_norm": 1},
        "decoder": {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": 2},
    }
    for stack, norms in numbers.items():
        for norm, number in norms.items():
            for name in [name for name in state if name.startswith(stack) and f".{norm}." in name]:
                state[name.replace(norm, f"layer_norms.{number}")] = state.pop(name)
    return state


def checkpoint(state, **changes) -> dict:
    return {"args": argparse.Namespace(**options(**changes)), "model": state, "extra_state": {"epoch": 3}}


@pytest.mark.parametrize("names", [weights, old_weights])
@pytest.mark.parametrize("layout", ["args", "cfg"])
def test_the_logits_are_those_of_fairseqs_network(fsmt, tmp_path, names, layout):
    stored = checkpoint(names(fsmt))
    if layout == "cfg":  # fairseq 0.10 and later
        stored = {
            "args": None,
            "cfg": {"model": stored["args"], "task": {"source_lang": "en"}},
            "model": stored["model"],
        }
    torch.save(stored, tmp_path / "model.pt")
    model = model_from_fairseq(read_checkpoint(tmp_path / "model.pt"), VOCAB_SIZE)
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, 1, 1]])
    target = torch.tensor([[2, 11, 12, 13], [2, 14, 15, 16]])
    inputs = {"input_ids": source, "attention_mask": (source != 1).long(), "decoder_input_ids": target}
    with torch.no_grad():
        assert_close(model(**inputs).logits, fsmt(**inputs, use_cache=False).logits, atol=1e-5, rtol=1e-5)
    assert model.config.decoder_start_token_id == model.config.eos_token_id == 2


def test_pre_norm_and_learned_positions_are_loaded(fsmt):
    state = weights(fsmt)
    extra = {
        f"{stack}.{name}": torch.randn(shape)
        for stack in ("encoder", "decoder")
        for name, shape in [("layer_norm.weight", 16), ("layer_norm.bias", 16), ("embed_positions.weight", (34, 16))]
    }
    switches = {
        f"{stack}_{name}": True for stack in ("encoder", "decoder") for name in ("normalize_before", "learned_pos")
    }
    model = model_from_fairseq(checkpoint({**state, **extra}, **switches), VOCAB_SIZE)
    assert (model.config.norm_placement, model.config.position_encoding) == ("pre", "learned")
    # Two rows of the table belong to no position: fairseq counts from its padding id.
    assert_close(model.model.encoder.embed_positions.weight.detach(), extra["encoder.embed_positions.weight"][2:])
    assert_close(model.model.decoder.norm.bias.detach(), extra["decoder.layer_norm.bias"])


class Surprise:
    def __reduce__(self):
        return print, ("this must not be printed",)


@pytest.mark.parametrize("stranger", [Surprise(), fractions.Fraction(1, 2)])
def test_a_pickle_with_anything_else_is_refused_and_nothing_runs(fsmt, tmp_path, capsys, stranger):
    torch.save({**checkpoint(weights(fsmt)), "extra_state": stranger}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"is a pickle with .*, which is not opened"):
        read_checkpoint(tmp_path / "model.pt")
    assert "must not be printed" not in capsys.readouterr().out


def test_files_that_are_no_checkpoints_are_refused(fsmt, tmp_path):
    torch.save(checkpoint(weights(fsmt)), tmp_path / "whole.pt")
    whole = (tmp_path / "whole.pt").read_bytes()
    (tmp_path / "half.pt").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.pt").write_text("hello")
    torch.save({"model": {}}, tmp_path / "no_options.pt")
    for name in ("half.pt", "text.pt", "no_options.pt"):
        with pytest.raises(ValueError, match=name):
            read_checkpoint(tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "fconv"}, "arch='fconv' can't be converted"),
        ({"layernorm_embedding": True}, "layernorm_embedding=True can't be converted"),
        ({"adaptive_softmax_cutoff": [100]}, "adaptive_softmax_cutoff"),
        ({"decoder_normalize_before": True}, "encoder_normalize_before=False and decoder_normalize_before=True"),
        ({"encoder_layers": 3}, "has no weights 'model.encoder.layers.2"),
        ({"encoder_layers": 1}, "has weights 'model.encoder.layers.1"),
        ({"encoder_normalize_before": True, "decoder_normalize_before": True}, "without a norm after the last layer"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(fsmt, changes, message):
    with pytest.raises(ValueError, match=message):
        model_from_fairseq(checkpoint(weights(fsmt), **changes), VOCAB_SIZE)


def test_weights_that_do_not_fit_are_refused(fsmt):
    with pytest.raises(ValueError, match="24 embeddings and the dictionary 30 tokens"):
        model_from_fairseq(checkpoint(weights(fsmt)), 30)
    state = weights(fsmt)
    state["decoder.output_projection.weight"] = state["decoder.output_projection.weight"] + 1
    with pytest.raises(ValueError, match=r"lm_head.weight and .* differ"):
        model_from_fairseq(checkpoint(state), VOCAB_SIZE)


def test_options_that_old_checkpoints_lack_have_fairseqs_defaults():
    stored = {"args": argparse.Namespace(encoder_embed_dim=256, relu_dropout=0.2), "model": {}}
    read = options_of(stored)
    assert (read["decoder_embed_dim"], read["decoder_ffn_embed_dim"], read["activation_dropout"]) == (256, 2048, 0.2)


def test_dictionaries(tmp_path):
    path = tmp_path / "dict.en.txt"
    path.write_text("the 120\nhou@@ 30\na b 2\nmadeupword0000 0\n")
    assert read_dictionary(path) == {
        **{"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3},
        **{"the": 4, "hou@@": 5, "a b": 6, "madeupword0000": 7},
    }
    for content, message in [("the\n", "is not a token and its count"), ("the 1\nthe 2\n", "there twice")]:
        path.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_dictionary(path)
