"""The weights of a saved model as numpy arrays, and its position tables, for conversions that need no torch.

    weights = read_weights("runs/demo/model")
    weights["model.encoder.layers.0.self_attn.q_proj.weight"]     # [D, D] in float32

`position_tables` computes in numpy what the classes of `models/positions.py` compute in torch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import deserialize

from vanilla_transformer.hub.saved_files import Saved, errors_in_one_sentence, find_file, read_object


if TYPE_CHECKING:
    from vanilla_transformer.models.configuration_vanilla_transformer import VanillaTransformerConfig

Weights = dict[str, np.ndarray]
SAFETENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
STACKS = ("encoder", "decoder")
LEARNED = "learned"
POSITIONS = "model.{}.embed_positions.table"  # the position table of a stack among the weights
TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
HEAD, TARGET_EMBEDDING, SOURCE_EMBEDDING = (
    *("lm_head.weight", "model.decoder.embed_tokens.weight"),
    "model.encoder.embed_tokens.weight",
)


def find_weights(name_or_path: str | Path, **options: Any) -> list[Path]:
    """Returns the safetensors files of a model; none if it has its weights in another format."""
    if path := find_file(name_or_path, SAFETENSORS, required=False, **options):
        return [path]
    if (index := find_file(name_or_path, INDEX, required=False, **options)) is None:
        return []
    with errors_in_one_sentence(name_or_path):
        names = sorted(set(read_object(index)["weight_map"].values()))
    return [path for name in names if (path := find_file(name_or_path, name, **options))]


def read_weights(name_or_path: str | Path, config: Saved, **options: Any) -> Weights:
    """Returns all weights of a model in float32, also those that are saved once because they are tied.

    Args:
        name_or_path: Folder, or name on the Hub.
        config: The model's config.
        options: Options of `from_pretrained` that say where the files are.
    """
    weights: Weights = {}
    for path in find_weights(name_or_path, **options):
        with errors_in_one_sentence(name_or_path):
            for name, entry in deserialize(path.read_bytes()):
                weights[name] = _array(entry)
    for name, tied in _ties(config).items():
        if name not in weights and tied in weights:
            weights[name] = weights[tied]
    with errors_in_one_sentence(name_or_path):
        _require_shapes(config, weights)
    return weights


def target_vocabulary_of(config: "Saved | VanillaTransformerConfig") -> int:
    """Returns how many tokens the decoder reads and writes."""
    return config.vocab_size if config.target_vocab_size is None else config.target_vocab_size


def _require_shapes(config: Saved, weights: Weights) -> None:
    """Refuses weights of another model than the config describes: an engine could read them as something else."""
    width = config.d_model
    for stack, tokens in zip(STACKS, (config.vocab_size, target_vocabulary_of(config)), strict=True):
        heads, inner = (getattr(config, f"{stack}_{name}") for name in ("attention_heads", "ffn_dim"))
        keys, values = (heads * (each or width // heads) for each in (config.d_k, config.d_v))
        shapes = {
            **{"embed_tokens": (tokens, width), "fc1": (inner, width), "fc2": (width, inner), "norm": (width,)},
            **{"q_proj": (keys, width), "k_proj": (keys, width)},
            **{"v_proj": (values, width), "out_proj": (width, values)},
        }
        for name, array in weights.items():
            expected = shapes.get(name.split(".")[-2]) if name.endswith(".weight") else None
            if name.startswith(f"model.{stack}.") and expected not in (None, array.shape):
                raise ValueError(f"its weights {name} have the shape {array.shape}, not {expected}")


def _array(entry: dict[str, Any]) -> np.ndarray:
    """Returns a tensor of a file in float32. numpy has no bfloat16: it is the upper half of a float32."""
    if entry["dtype"] == "BF16":
        halves = np.frombuffer(entry["data"], np.uint16)
        return (halves.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
    if entry["dtype"] not in TYPES:
        raise ValueError(f"its weights have the type {entry['dtype']}, which is not converted")
    return np.frombuffer(entry["data"], TYPES[entry["dtype"]]).astype(np.float32).reshape(entry["shape"])


def _ties(config: Saved) -> dict[str, str]:
    """Returns which weight may stand for another that a file lacks."""
    if not config.tie_word_embeddings:
        return {}
    shared = config.target_vocab_size is None and config.share_encoder_decoder_embeddings is not False
    ties = {TARGET_EMBEDDING: SOURCE_EMBEDDING} if shared else {}
    return {**ties, HEAD: TARGET_EMBEDDING}


# --- positions ---


def position_tables(config: "Saved | VanillaTransformerConfig", weights: Weights, length: int) -> Weights:
    """Returns the vectors [length, D] that encoder and decoder add to their embeddings, by the names `POSITIONS`."""
    if config.position_encoding == LEARNED:
        return {POSITIONS.format(stack): weights[f"model.{stack}.embed_positions.weight"] for stack in STACKS}
    table = TABLES[config.position_encoding](np.arange(length, dtype=np.float64), config).astype(np.float32)
    return {POSITIONS.format(stack): table for stack in STACKS}


def _angles(positions: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sines and cosines [T, D/2] of waves whose lengths are powers of 10000."""
    angles = positions[:, None] * np.power(10000.0, -exponents)
    return np.sin(angles), np.cos(angles)


def _interleaved(positions: np.ndarray, config: Saved) -> np.ndarray:
    waves = _angles(positions, np.arange(0, config.d_model, 2) / config.d_model)
    return np.stack(waves, axis=-1).reshape(len(positions), -1)


def _halves(positions: np.ndarray, config: Saved) -> np.ndarray:
    return np.concatenate(_angles(positions, np.arange(0, config.d_model, 2) / config.d_model), axis=-1)


def _tensor2tensor(positions: np.ndarray, config: Saved) -> np.ndarray:
    half = config.d_model // 2
    return np.concatenate(_angles(positions, np.arange(half) / max(half - 1, 1)), axis=-1)


def _fairseq(positions: np.ndarray, config: Saved) -> np.ndarray:
    return _tensor2tensor(positions + int(config.pad_token_id or 0) + 1, config)


def _integer(positions: np.ndarray, config: Saved) -> np.ndarray:
    return np.repeat(positions[:, None], config.d_model, axis=1)


TABLES: dict[str, Callable[[np.ndarray, Saved], np.ndarray]] = {
    "sinusoidal": _interleaved,
    "sinusoidal_halves": _halves,
    "sinusoidal_tensor2tensor": _tensor2tensor,
    "sinusoidal_fairseq": _fairseq,
    "integer": _integer,
}
ENCODINGS = (*TABLES, LEARNED)
