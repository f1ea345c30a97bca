"""Which class belongs to which model type: for the auto classes, and for the `auto_map` of a saved config.

For each model type: the class of its config, and the classes that the auto classes make.
"""

MODELS = {
    "vanilla_transformer": (
        "VanillaTransformerConfig",
        {
            "AutoModel": "VanillaTransformerModel",
            "AutoModelForSeq2SeqLM": "VanillaTransformerForConditionalGeneration",
            "AutoModelForTextEncoding": "VanillaTransformerEncoderModel",
        },
    ),
    "rnn_search": ("RnnSearchConfig", {"AutoModelForSeq2SeqLM": "RnnSearchForConditionalGeneration"}),
    "mask_predict": (
        "MaskPredictConfig",
        {
            "AutoModel": "MaskPredictModel",
            "AutoModelForSeq2SeqLM": "MaskPredictForConditionalGeneration",
            "AutoModelForTextEncoding": "MaskPredictEncoderModel",
        },
    ),
}


def auto_map_of(model_type: str) -> dict[str, str]:
    """The `auto_map` of a config: where a saved folder has each class."""
    config_class, model_classes = MODELS[model_type]
    entries = {"AutoConfig": f"configuration_{model_type}.{config_class}"}
    return entries | {auto: f"modeling_{model_type}.{name}" for auto, name in model_classes.items()}
