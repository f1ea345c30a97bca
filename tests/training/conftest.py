"""A recipe for runs of a few seconds."""

import json

import pytest

from tests.training.runs import write_reversals


SIZES = {
    # For each model_type, the fields of a model that trains in milliseconds.
    "vanilla_transformer": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "d_model": 32,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "dropout": 0.0,
    },
    "mask_predict": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "d_model": 32,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "dropout": 0.0,
    },
    "marian": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "d_model": 32,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "max_position_embeddings": 64,
        "dropout": 0.0,
    },
    "rnn_search": {"embedding_size": 16, "hidden_size": 16, "attention_size": 16, "readout_size": 16},
    "t5": {"num_layers": 1, "d_model": 32, "d_kv": 16, "num_heads": 2, "d_ff": 64, "dropout_rate": 0.0},
}


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe and returns the words of its command line; keywords override the recipe's keys."""

    def write(**keys) -> list[str]:
        model_type = keys.get("model_type", "vanilla_transformer")
        content = {
            "source_lang": "en",
            "target_lang": "de",
            "train_files": [write_reversals(tmp_path)],
            "validation_files": [write_reversals(tmp_path, 20, seed=1)],
            "vocab_size": 300,
            **({"preset": "tiny"} if model_type in ("vanilla_transformer", "mask_predict") else {}),
            "model_config": {**SIZES[model_type], **keys.pop("model_config", {})},
            "output_dir": str(tmp_path / "run"),
            "max_tokens": 128,
            "max_steps": 12,
            "warmup_steps": 6,
            "logging_steps": 1,
            "save_steps": 4,
            "eval_steps": 6,
            "eval_strategy": "steps",
            "use_cpu": True,
            **keys,
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(json.dumps(content))  # JSON is YAML
        return [str(path)]

    return write
