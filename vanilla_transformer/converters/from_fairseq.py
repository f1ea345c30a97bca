"""Conversion of fairseq's `transformer` checkpoints, such as the WMT models of "Scaling Neural Machine Translation".

    from vanilla_transformer.converters.from_fairseq import model_from_fairseq, read_checkpoint, read_dictionary

    vocabulary = read_dictionary("dict.en.txt")
    model = model_from_fairseq(read_checkpoint("model.pt"), len(vocabulary))

A checkpoint is a pickle. It is read with torch's `weights_only` loader, which knows tensors and plain containers; the
only other class allowed is `argparse.Namespace`, in which fairseq keeps its options. A checkpoint with anything else
is refused, and so is one with an option or a weight that is not understood.

Two facts differ from the paper. Positions are numbered from 2, because fairseq counts from its padding id. The decoder
starts with the end of sentence.
"""

import argparse
import re
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from vanilla_transformer.models.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerForConditionalGeneration

from .from_and_to_marian import LAYER_NAMES, rename


State = dict[str, torch.Tensor]

# The first tokens of every dictionary, in fairseq's order; dict.txt leaves them out.
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
# fairseq's defaults for options that an old checkpoint does not store. A string is the option that it is equal to.
DEFAULTS: dict[str, Any] = {
    "arch": "transformer",
    "encoder_embed_dim": 512,
    "encoder_ffn_embed_dim": 2048,
    "encoder_layers": 6,
    "encoder_attention_heads": 8,
    "encoder_normalize_before": False,
    "encoder_learned_pos": False,
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_layers": 6,
    "decoder_attention_heads": 8,
    "decoder_normalize_before": False,
    "decoder_learned_pos": False,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
    "no_scale_embedding": False,
    "activation_fn": "relu",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": "relu_dropout",
    "relu_dropout": 0.0,
    "label_smoothing": 0.0,
}
# Options that change the network in a way this model does not have: they must be off.
MUST_BE_OFF = (
    *("adaptive_input", "adaptive_softmax_cutoff", "cross_self_attention", "no_cross_attention"),
    *("layernorm_embedding", "no_token_positional_embeddings", "no_decoder_final_norm", "offload_activations"),
    *("encoder_layers_to_keep", "decoder_layers_to_keep", "char_embedder_spec"),
)
# Options with two values, one for each stack, that must be equal here.
EQUAL_IN_BOTH_STACKS = ("embed_dim", "normalize_before", "learned_pos")
# Tensors that are no weights of the network: version numbers, a marker for the type of the positions and, in 0.12.2,
# room for copies of a layer's weights that a fused kernel reads.
NO_WEIGHTS = re.compile(
    r".*\.version|.*\.embed_positions\._float_tensor|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)
# Names in checkpoints of fairseq before 0.6: the norms of a layer had numbers.
OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Reads a checkpoint without running any code of it.

    Args:
        path: A `.pt` file of fairseq.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"There is no checkpoint {path}: give a file written by fairseq-train.")
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        class_name = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"the class {class_name[1]}" if class_name else "something that is not a tensor"
        raise ValueError(
            f"{path} is a pickle with {reason}, which is not opened: save the checkpoint again with only its `args` "
            "(or `cfg`) and `model`."
        ) from error
    except Exception as error:  # torch has no one class for files that are no checkpoints
        raise ValueError(f"{path} is not a checkpoint of torch, or it is truncated: download it again.") from error
    if not isinstance(checkpoint, dict) or "model" not in checkpoint or not (_stored_options(checkpoint)):
        raise ValueError(f"{path} has no `model` with `args` or `cfg`: give a checkpoint written by fairseq-train.")
    return checkpoint


def read_dictionary(path: str | Path) -> dict[str, int]:
    """Reads a fairseq dictionary, a file with a token and its count on each line, as tokens and ids.

    Args:
        path: `dict.LANG.txt` of the data folder that the model was trained on.
    """
    vocabulary = {token: token_id for token_id, token in enumerate(SPECIAL_TOKENS)}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        token, _, count = line.removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not token or not count.isdigit():
            raise ValueError(f"{path}, line {number}: {line!r} is not a token and its count: give fairseq's dict.txt.")
        if token in vocabulary:
            raise ValueError(f"{path}, line {number}: the token {token!r} is there twice.")
        vocabulary[token] = len(vocabulary)
    return vocabulary


def model_from_fairseq(checkpoint: dict[str, Any], vocab_size: int) -> VanillaTransformerForConditionalGeneration:
    """Converts a checkpoint into this package's model; weights become float32.

    Args:
        checkpoint: What `read_checkpoint` returned.
        vocab_size: Tokens of the joined dictionary.
    """
    options = options_of(checkpoint)
    state = state_from_fairseq(checkpoint["model"], options)
    config = config_from_fairseq(options, state, vocab_size)
    model = VanillaTransformerForConditionalGeneration(config)
    _load(model, state)
    return model.eval()


# --- options ---


def options_of(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of a checkpoint, with fairseq's defaults for those it does not store."""
    stored = _stored_options(checkpoint)
    options = {**DEFAULTS, **stored}
    for name, value in list(options.items()):
        if isinstance(value, str) and value in DEFAULTS:
            options[name] = options[value]
    _require_understood(options)
    return options


def _stored_options(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """The options in `args` (before fairseq 0.10) or in `cfg`, where those of the model have a part of their own."""
    config = checkpoint.get("cfg") or {}
    parts = [checkpoint.get("args"), *(config.get(name) for name in ("task", "criterion", "model"))]
    options: dict[str, Any] = {}
    for part in parts:
        options |= vars(part) if isinstance(part, argparse.Namespace) else dict(part or {})
    return options


def _require_understood(options: dict[str, Any]) -> None:
    arch = options.get("_name") or options["arch"]
    if not str(arch).startswith("transformer"):
        raise ValueError(f"arch={arch!r} can't be converted: only fairseq's `transformer` architectures can.")
    for name in MUST_BE_OFF:
        if options.get(name):
            raise ValueError(f"{name}={options[name]!r} can't be converted: this model has nothing like it.")
    for name in EQUAL_IN_BOTH_STACKS:
        of_encoder, of_decoder = options[f"encoder_{name}"], options[f"decoder_{name}"]
        if of_encoder != of_decoder:
            raise ValueError(
                f"encoder_{name}={of_encoder!r} and decoder_{name}={of_decoder!r} can't be converted: in this model "
                "they are equal."
            )


def config_from_fairseq(options: dict[str, Any], state: State, vocab_size: int) -> VanillaTransformerConfig:
    """Makes the config.

    Args:
        options: From `options_of`.
        state: The renamed weights, for the number of learned positions and the vocabulary.
        vocab_size: Tokens of the joined dictionary.
    """
    for stack in ("encoder", "decoder"):
        rows = len(state[f"model.{stack}.embed_tokens.weight"])
        if rows != vocab_size:
            raise ValueError(
                f"The {stack} has {rows} embeddings and the dictionary {vocab_size} tokens: give the dict.txt of the "
                "data that the model was trained on. (Only joined dictionaries can be converted.)"
            )
    positions = state.get("model.encoder.embed_positions.weight")
    tied = bool(options["share_all_embeddings"] or options["share_decoder_input_output_embed"])
    return VanillaTransformerConfig(
        vocab_size=vocab_size,
        d_model=options["encoder_embed_dim"],
        encoder_layers=options["encoder_layers"],
        decoder_layers=options["decoder_layers"],
        encoder_attention_heads=options["encoder_attention_heads"],
        decoder_attention_heads=options["decoder_attention_heads"],
        encoder_ffn_dim=options["encoder_ffn_embed_dim"],
        decoder_ffn_dim=options["decoder_ffn_embed_dim"],
        activation_function=options["activation_fn"],
        dropout=options["dropout"],
        attention_dropout=options["attention_dropout"],
        activation_dropout=options["activation_dropout"],
        label_smoothing=options["label_smoothing"],
        norm_placement="pre" if options["encoder_normalize_before"] else "post",
        position_encoding="sinusoidal_fairseq" if positions is None else "learned",
        max_position_embeddings=1024 if positions is None else len(positions),
        scale_embedding=not options["no_scale_embedding"],
        tie_word_embeddings=tied,
        share_encoder_decoder_embeddings=bool(options["share_all_embeddings"]) if tied else None,
        bos_token_id=SPECIAL_TOKENS.index("<s>"),
        pad_token_id=SPECIAL_TOKENS.index("<pad>"),
        eos_token_id=SPECIAL_TOKENS.index("</s>"),
        decoder_start_token_id=SPECIAL_TOKENS.index("</s>"),
    )


# --- weights ---


def state_from_fairseq(state: State, options: dict[str, Any]) -> State:
    """Renames fairseq's weights, also those of old versions.

    Args:
        state: The `model` of a checkpoint.
        options: From `options_of`.
    """
    converted: State = {}
    for name, tensor in state.items():
        if NO_WEIGHTS.fullmatch(name):
            continue
        name = _with_named_norm(name)
        if ".in_proj_" in name:
            for projection, part in zip("qkv", tensor.chunk(3), strict=True):
                converted[_ours(name.replace("in_proj_", f"{projection}_proj."))] = part
        elif name.endswith("embed_positions.weight"):
            converted[_ours(name)] = tensor[SPECIAL_TOKENS.index("<pad>") + 1 :]
        else:
            converted[_ours(name)] = tensor
    if options["encoder_normalize_before"] and "model.encoder.norm.weight" not in converted:
        raise ValueError(
            "encoder_normalize_before=True without a norm after the last layer can't be converted: only checkpoints "
            "of fairseq 0.5 and later have one."
        )
    return converted


def _with_named_norm(name: str) -> str:
    """Turns `encoder.layers.0.layer_norms.1` into its name in later versions."""
    numbered = re.match(r"(encoder|decoder)(\.layers\.\d+\.)layer_norms\.(\d)\.(.*)", name)
    if not numbered:
        return name
    stack, layer, number, rest = numbered.groups()
    return f"{stack}{layer}{OLD_NORMS[stack][int(number)]}.{rest}"


def _ours(name: str) -> str:
    if name in ("decoder.output_projection.weight", "decoder.embed_out"):
        return "lm_head.weight"
    name = re.sub(r"^(encoder|decoder)\.layer_norm\.", r"\1.norm.", name)
    return "model." + rename(name, LAYER_NAMES)


def _load(model: VanillaTransformerForConditionalGeneration, state: State) -> None:
    """Loads all weights. A tied matrix may be there under one of its names only, or under several with one value."""
    tied = model.all_tied_weights_keys
    for name, source in tied.items():
        if name in state and not torch.equal(state[name], state[source]):
            raise ValueError(f"{name} and {source} differ in a checkpoint whose options say that they are one matrix.")
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if name not in tied]
    if missing or unexpected:
        problem = f"has weights {unexpected[0]!r}, which" if unexpected else f"has no weights {missing[0]!r}, which"
        remedy = "this model does not have" if unexpected else "this model needs"
        raise ValueError(
            f"The checkpoint {problem} {remedy}: only plain `transformer` architectures can be converted."
        )
    model.tie_weights()
