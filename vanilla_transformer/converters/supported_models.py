"""What all converters ask of this package's models: that they understand the config, and the positions as a table.

A converter names the config fields it understands. Any other field must have its default value. So a field that is
added to the config later is refused until the converter handles it, and no model is converted into another one.
"""

from collections.abc import Collection, Sequence
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any

from vanilla_transformer.hub.saved_files import SavedConfig, default_fields


if TYPE_CHECKING:  # importing them imports torch, which a conversion from saved files does not need
    import torch
    from transformers import PreTrainedConfig

    from vanilla_transformer.models.configuration_vanilla_transformer import VanillaTransformerConfig
    from vanilla_transformer.models.positions import PositionEncoding


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


def require_understood(config: "PreTrainedConfig | SavedConfig", understood: Collection[str], target: str) -> None:
    """Refuses a config with a field that is not at its default and that the converter does not understand.

    Args:
        config: The config of the model to convert.
        understood: The fields that the converter handles, besides those outside the network.
        target: What the model would become.
    """
    if config.model_type != OURS:
        raise ValueError(f"model_type={config.model_type!r} can't become {target}: convert a model of type {OURS!r}.")
    if isinstance(config, SavedConfig):
        defaults = default_fields(OURS)
    else:
        defaults = {field.name: _default_of(field) for field in fields(config)}
    for name, default in defaults.items():
        value = getattr(config, name)
        if name not in (*understood, *OUTSIDE_THE_NETWORK) and value != default:
            raise ValueError(
                f"{name}={value!r} can't become {target}, which only has {default!r}: train a model with that."
            )


def _default_of(field: Field) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def position_encoding_of(config: "VanillaTransformerConfig") -> "PositionEncoding":
    """Makes the encoder's position encoding that a config names, without drawing from torch's random numbers."""
    import torch

    from vanilla_transformer.models.variants import POSITIONS

    with torch.random.fork_rng(devices=[]):
        return POSITIONS[config.position_encoding].load()(config, config.encoder_attention_heads, False)


def has_position_table(encoding: "PositionEncoding") -> bool:
    """Whether the encoding adds one vector for each position to the embeddings, and nothing else."""
    from vanilla_transformer.models.positions import AddedPositions

    return type(encoding).encode is AddedPositions.encode


def position_table(encoding: "PositionEncoding", length: int, device: "torch.device | str" = "cpu") -> "torch.Tensor":
    """Returns the vectors that an encoding adds at the first positions [length, D]."""
    import torch

    with torch.no_grad():
        return encoding(torch.arange(length, device=device))


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
