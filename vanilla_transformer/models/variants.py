"""What a config names: the classes of each model type, and the choices of each field that can vary.

A class is named by its file in this folder, `"file.Class"`, which is imported when a config names it. So a saved model
carries the files of its own choices and no others. A choice from elsewhere is one more entry, the class itself:

    SCORES["mine"] = MyScore
"""

from importlib import import_module
from typing import Any


Choice = type | str

POSITIONS: dict[str, Choice] = {
    "sinusoidal": "positions.SinusoidalPositions",
    "sinusoidal_halves": "position_variants.SinusoidalHalvesPositions",
    "sinusoidal_tensor2tensor": "position_variants.SinusoidalTensor2TensorPositions",
    "sinusoidal_fairseq": "position_variants.SinusoidalFairseqPositions",
    "learned": "position_variants.LearnedPositions",
    "concatenated": "position_variants.ConcatenatedPositions",
    "relative": "position_variants.RelativePositions",
    "rotary": "position_variants.RotaryPositions",
    "integer": "position_variants.IntegerPositions",
    "none": "position_variants.NoPositions",
}
SCORES: dict[str, Choice] = {
    "scaled_dot": "modeling_vanilla_transformer.ScaledDotProduct",
    "dot": "attention_scores.DotProduct",
    "additive": "attention_scores.AdditiveScore",
    "gaussian": "attention_scores.GaussianScore",
}
# Which tokens self-attention may look at.
PATTERNS: dict[str, Choice] = {
    "full": "modeling_vanilla_transformer.VanillaTransformerAttention",
    "window": "window_attention.WindowAttention",
    "longformer": "longformer_attention.LongformerAttention",
    "lsh": "lsh_attention.LshAttention",
}
# Where the norm is.
RESIDUALS: dict[str, Choice] = {
    "post": "modeling_vanilla_transformer.VanillaTransformerPostNorm",
    "pre": "modeling_vanilla_transformer.VanillaTransformerPreNorm",
    "reversible": "reversible_layers.ReversibleNorm",
}

# The fields of the config that name a choice.
VARIANTS: dict[str, dict[str, Choice]] = {
    "position_encoding": POSITIONS,
    "score_function": SCORES,
    "attention_pattern": PATTERNS,
    "norm_placement": RESIDUALS,
}
# Fields that belong to some choices of a field: with another choice they must keep their defaults.
FIELDS_OF_CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "attention_window": ("attention_pattern", ("window", "longformer")),
    "num_hashes": ("attention_pattern", ("lsh",)),
    "lsh_bucket_length": ("attention_pattern", ("lsh",)),
    "hash_seed": ("attention_pattern", ("lsh",)),
}

# For each model type, what the auto classes make: the `auto_map` of its saved config.
MODELS: dict[str, dict[str, str]] = {
    "vanilla_transformer": {
        "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
        "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
        "AutoModelForSeq2SeqLM": "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration",
        "AutoModelForTextEncoding": "text_encoder.VanillaTransformerEncoderModel",
    },
    "rnn_search": {
        "AutoConfig": "configuration_rnn_search.RnnSearchConfig",
        "AutoModelForSeq2SeqLM": "modeling_rnn_search.RnnSearchForConditionalGeneration",
    },
    "mask_predict": {
        "AutoConfig": "configuration_mask_predict.MaskPredictConfig",
        "AutoModel": "modeling_mask_predict.MaskPredictModel",
        "AutoModelForSeq2SeqLM": "modeling_mask_predict.MaskPredictForConditionalGeneration",
        "AutoModelForTextEncoding": "modeling_mask_predict.MaskPredictEncoderModel",
    },
}


def load(place: Choice) -> Any:
    """Returns the class of an entry. Its file is imported at the first use."""
    if not isinstance(place, str):
        return place
    file, name = place.split(".")
    return getattr(import_module(f".{file}", __package__), name)
