"""What all converters ask of this package's models: that they understand the config.

A converter names the config fields it understands. Any other field must be the paper's, or outside the network. So a
field that is added to the config later is refused until it is on one of the lists.
"""

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from vanilla_transformer.hub.saved_files import Saved


if TYPE_CHECKING:  # importing it imports torch, which a conversion from saved files does not need
    from transformers import PreTrainedConfig


OURS = "vanilla_transformer"  # the model type that converters take
# Fields that do not change what a trained model computes: used in training only, about outputs, or plain records.
OUTSIDE_THE_NETWORK = (
    *(
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "label_smoothing",
        "use_cache",
        "initializer",
        "initializer_gain",
    ),
    *("transformers_version", "architectures", "dtype", "output_hidden_states", "return_dict"),
    *("chunk_size_feed_forward", "id2label", "label2id", "problem_type"),
    *("source_lang", "target_lang", "directions", "alignment_layer", "placeholders"),
)


# The other fields, with the values of the paper's network.
PLAIN: dict[str, Any] = {
    **{"is_encoder_decoder": True, "score_function": "scaled_dot", "key_projection": "separate"},
    **{"attention_pattern": "full", "attention_window": 256, "num_hashes": 4, "lsh_bucket_length": 64, "hash_seed": 0},
    **{"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    **{"norm_placement": "post", "position_encoding": "sinusoidal", "layer_norm_eps": 1e-5},
}


def require_understood(config: "PreTrainedConfig | Saved", understood: Collection[str], target: str) -> None:
    """Refuses a config with a field that is not the paper's and that the converter does not understand.

    Args:
        config: The config of the model to convert.
        understood: The fields that the converter handles, besides those outside the network.
        target: What the model would become.
    """
    if config.model_type != OURS:
        raise ValueError(f"model_type={config.model_type!r} can't become {target}: convert a model of type {OURS!r}.")
    names = PLAIN if isinstance(config, Saved) else [field.name for field in fields(config)]
    for name in names:
        value = getattr(config, name)
        if name not in (*understood, *OUTSIDE_THE_NETWORK) and (name not in PLAIN or value != PLAIN[name]):
            only = f", which only has {PLAIN[name]!r}: train a model with that" if name in PLAIN else ": leave it out"
            raise ValueError(f"{name}={value!r} can't become {target}{only}.")


def aligning_heads(config: Any, layers: int, heads: int) -> tuple[int, int]:
    """Returns the decoder layer whose attention to the source aligns best, and how many of its first heads count: the
    head that learned word links or, without one, all heads of the last layer but one (Garg et al. 2019, "Jointly
    Learning to Align and Translate with Transformer Models").

    Args:
        config: The model's config.
        layers: Layers of its decoder.
        heads: Heads of a layer.
    """
    layer = getattr(config, "alignment_layer", None)
    return (max(layers - 2, 0), heads) if layer is None else (layer, 1)


def require_quantization(quantization: str, known: Sequence[str]) -> None:
    """Refuses a quantization that is not one of those a backend knows."""
    if quantization not in known:
        raise ValueError(f"quantization={quantization!r} is unknown: choose one of {', '.join(known)}.")
