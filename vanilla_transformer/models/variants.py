"""What can vary, by name: for each such field of the config, the choices.

A choice is imported only when a config names it, so the paper's model needs none of the annexes (`window_attention`,
`longformer_attention`, `lsh_attention`, `reversible_layers`). A choice from elsewhere is one more entry:

    SCORES["mine"] = Variant(lambda: MyScore)
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from .configuration_vanilla_transformer import VanillaTransformerConfig


def _fits_any_config(config: "VanillaTransformerConfig") -> None:
    """The check of a choice that has no demands."""


class Variant(NamedTuple):
    """A choice.

    Args:
        load: Imports and returns its class.
        fields: The fields of the config that belong to it; with another choice they must keep their defaults.
        in_decoder: What the decoder has in its place, for a choice of the encoder only.
        check: Raises a `ValueError` for a config that it does not fit. Runs whenever a config is made.
    """

    load: Callable[[], Any]
    fields: tuple[str, ...] = ()
    in_decoder: str | None = None
    check: Callable[["VanillaTransformerConfig"], None] = _fits_any_config


# --- positions: classes of `positions` ---


def _position(name: str) -> Callable[[], Any]:
    return lambda: getattr(import_module(".positions", __package__), name)


def _even_width(config: "VanillaTransformerConfig") -> None:
    if config.d_model % 2:
        raise ValueError(
            f"d_model={config.d_model} is odd, but sinusoids come in pairs of sine and cosine: make it even, or set "
            "position_encoding='learned'."
        )


def _padding_is_known(config: "VanillaTransformerConfig") -> None:
    _even_width(config)
    if config.pad_token_id is None:
        raise ValueError(
            "position_encoding='sinusoidal_fairseq' counts positions from pad_token_id + 1: set pad_token_id."
        )


def _even_heads(config: "VanillaTransformerConfig") -> None:
    for heads in (config.encoder_attention_heads, config.decoder_attention_heads):
        if (d_k := config.d_k or config.d_model // heads) % 2:
            raise ValueError(
                f"d_k={d_k} is odd, but rotary positions rotate pairs of features: choose an even width of heads."
            )


def _possible_buckets(config: "VanillaTransformerConfig") -> None:
    buckets, furthest = config.relative_attention_num_buckets, config.relative_attention_max_distance
    if buckets < 4 or buckets % 4:
        raise ValueError(f"relative_attention_num_buckets={buckets} must be a positive multiple of 4.")
    if furthest <= buckets // 2:
        raise ValueError(
            f"relative_attention_max_distance={furthest} must be greater than {buckets // 2}, the distances that have "
            "a bucket of their own."
        )


POSITIONS: dict[str, Variant] = {
    "sinusoidal": Variant(_position("SinusoidalPositions"), check=_even_width),
    "sinusoidal_halves": Variant(_position("SinusoidalHalvesPositions"), check=_even_width),
    "sinusoidal_tensor2tensor": Variant(_position("SinusoidalTensor2TensorPositions"), check=_even_width),
    "sinusoidal_fairseq": Variant(_position("SinusoidalFairseqPositions"), check=_padding_is_known),
    "learned": Variant(_position("LearnedPositions")),
    "concatenated": Variant(_position("ConcatenatedPositions"), check=_even_width),
    "relative": Variant(_position("RelativePositions"), check=_possible_buckets),
    "rotary": Variant(_position("RotaryPositions"), check=_even_heads),
    "integer": Variant(_position("IntegerPositions")),
    "none": Variant(_position("NoPositions")),
}


# --- scores: classes of `attention_scores` ---


def _score(name: str) -> Callable[[], Any]:
    return lambda: getattr(import_module(".attention_scores", __package__), name)


SCORES: dict[str, Variant] = {
    "scaled_dot": Variant(_score("ScaledDotProduct")),
    "dot": Variant(_score("DotProduct")),
    "additive": Variant(_score("AdditiveScore")),
    "gaussian": Variant(_score("GaussianScore")),
}


# --- attention patterns: which tokens self-attention may look at ---


# The annexes are imported by statements: `save_pretrained` reads these to find the files of a model.


def _full() -> Any:
    from .modeling_vanilla_transformer import VanillaTransformerAttention

    return VanillaTransformerAttention


def _window() -> Any:
    from .window_attention import WindowAttention

    return WindowAttention


def _longformer() -> Any:
    from .longformer_attention import LongformerAttention

    return LongformerAttention


def _lsh() -> Any:
    from .lsh_attention import LshAttention

    return LshAttention


def _even_window(config: "VanillaTransformerConfig") -> None:
    if config.attention_window < 2 or config.attention_window % 2:
        raise ValueError(
            f"attention_window={config.attention_window} must be an even number of 2 or more: a token sees half of it "
            "on each side."
        )


def _biases_scores(config: "VanillaTransformerConfig") -> bool:
    return POSITIONS[config.position_encoding].load().acts_on == "scores"


def _fits_longformer(config: "VanillaTransformerConfig") -> None:
    _even_window(config)
    if _biases_scores(config):
        raise ValueError(
            f"position_encoding={config.position_encoding!r} weighs keys by their distance, but the global tokens of "
            "attention_pattern='longformer' are equally near to all: choose another position_encoding, for example "
            "'rotary', or attention_pattern='window'."
        )


def _fits_lsh(config: "VanillaTransformerConfig") -> None:
    for name in ("num_hashes", "lsh_bucket_length"):
        if getattr(config, name) < 1:
            raise ValueError(f"{name}={getattr(config, name)} must be at least 1.")
    if config.score_function != "scaled_dot":
        raise ValueError(
            f"score_function={config.score_function!r} does not fit attention_pattern='lsh', which finds keys by "
            "their angle to the query: use 'scaled_dot'."
        )
    if _biases_scores(config):
        raise ValueError(
            f"position_encoding={config.position_encoding!r} needs a bias for all pairs of tokens, which "
            "attention_pattern='lsh' exists to avoid: choose another position_encoding, for example 'rotary'."
        )


PATTERNS: dict[str, Variant] = {
    "full": Variant(_full),
    "window": Variant(_window, fields=("attention_window",), check=_even_window),
    "longformer": Variant(_longformer, fields=("attention_window",), in_decoder="full", check=_fits_longformer),
    "lsh": Variant(_lsh, fields=("num_hashes", "lsh_bucket_length", "hash_seed"), in_decoder="full", check=_fits_lsh),
}


# --- residuals: where the norm is ---


def _post_norm() -> Any:
    from .modeling_vanilla_transformer import VanillaTransformerPostNorm

    return VanillaTransformerPostNorm


def _pre_norm() -> Any:
    from .modeling_vanilla_transformer import VanillaTransformerPreNorm

    return VanillaTransformerPreNorm


def _reversible() -> Any:
    from .reversible_layers import ReversibleNorm

    return ReversibleNorm


RESIDUALS: dict[str, Variant] = {
    "post": Variant(_post_norm),
    "pre": Variant(_pre_norm),
    "reversible": Variant(_reversible, in_decoder="pre"),
}


# The fields of the config that name a choice.
VARIANTS: dict[str, dict[str, Variant]] = {
    "position_encoding": POSITIONS,
    "score_function": SCORES,
    "attention_pattern": PATTERNS,
    "norm_placement": RESIDUALS,
}
