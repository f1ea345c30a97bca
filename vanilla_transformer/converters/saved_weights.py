"""The weights of a saved model as numpy arrays, and its position tables, for conversions that need no torch.

    weights = read_weights("runs/demo/model")
    weights["model.encoder.layers.0.self_attn.q_proj.weight"]     # [D, D] in float32

`position_tables` computes in numpy what the classes of `models/positions.py` compute in torch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import deserialize

from vanilla_transformer.hub.saved_files import SavedConfig, errors_in_one_sentence, find_file, read_object


Weights = dict[str, np.ndarray]
SAFETENSORS, INDEX = "model.safetensors", "model.safetensors.index.json"
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


def read_weights(name_or_path: str | Path, config: SavedConfig, **options: Any) -> Weights:
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


def _require_shapes(config: SavedConfig, weights: Weights) -> None:
    """Refuses weights of another model than the config describes: an engine could read them as something else."""
    width = config.d_model
    for stack, tokens in (("encoder", config.vocab_size), ("decoder", config.output_vocab_size)):
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


def _ties(config: SavedConfig) -> dict[str, str]:
    """Returns which weight may stand for another that a file lacks."""
    if not config.tie_word_embeddings:
        return {}
    shared = config.target_vocab_size is None and config.share_encoder_decoder_embeddings is not False
    ties = {TARGET_EMBEDDING: SOURCE_EMBEDDING} if shared else {}
    return {**ties, HEAD: TARGET_EMBEDDING}


# --- positions ---


def has_known_positions(config: SavedConfig) -> bool:
    """Whether the vectors that a position encoding adds are known here."""
    return config.position_encoding in (*TABLES, LEARNED)


def position_tables(config: SavedConfig, weights: Weights, length: int) -> dict[str, np.ndarray]:
    """Returns the vectors [length, D] that encoder and decoder add to their embeddings."""
    if config.position_encoding == LEARNED:
        return {stack: weights[f"model.{stack}.embed_positions.weight"] for stack in ("encoder", "decoder")}
    table = TABLES[config.position_encoding](np.arange(length, dtype=np.float64), config).astype(np.float32)
    return {"encoder": table, "decoder": table}


def _angles(positions: np.ndarray, exponents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sines and cosines [T, D/2] of waves whose lengths are powers of 10000."""
    angles = positions[:, None] * np.power(10000.0, -exponents)
    return np.sin(angles), np.cos(angles)


def _interleaved(positions: np.ndarray, config: SavedConfig) -> np.ndarray:
    waves = _angles(positions, np.arange(0, config.d_model, 2) / config.d_model)
    return np.stack(waves, axis=-1).reshape(len(positions), -1)


def _halves(positions: np.ndarray, config: SavedConfig) -> np.ndarray:
    return np.concatenate(_angles(positions, np.arange(0, config.d_model, 2) / config.d_model), axis=-1)


def _tensor2tensor(positions: np.ndarray, config: SavedConfig) -> np.ndarray:
    half = config.d_model // 2
    return np.concatenate(_angles(positions, np.arange(half) / max(half - 1, 1)), axis=-1)


def _fairseq(positions: np.ndarray, config: SavedConfig) -> np.ndarray:
    return _tensor2tensor(positions + int(config.pad_token_id or 0) + 1, config)


def _integer(positions: np.ndarray, config: SavedConfig) -> np.ndarray:
    return np.repeat(positions[:, None], config.d_model, axis=1)


LEARNED = "learned"
TABLES: dict[str, Callable[[np.ndarray, SavedConfig], np.ndarray]] = {
    "sinusoidal": _interleaved,
    "sinusoidal_halves": _halves,
    "sinusoidal_tensor2tensor": _tensor2tensor,
    "sinusoidal_fairseq": _fairseq,
    "integer": _integer,
}
