"""The models of the paper by name: each preset lists only what differs from the base model of Table 3."""

BIG = {
    "d_model": 1024,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "dropout": 0.3,
}


def _heads(number: int) -> dict:
    return {"encoder_attention_heads": number, "decoder_attention_heads": number}


def _layers(number: int) -> dict:
    return {"encoder_layers": number, "decoder_layers": number}


def _ffn(width: int) -> dict:
    return {"encoder_ffn_dim": width, "decoder_ffn_dim": width}


PRESETS: dict[str, dict] = {
    "base": {},
    "big": BIG,
    # Section 6.1: the English-French big model has a dropout of 0.1 and 32,000 word pieces.
    "big-en-fr": {**BIG, "dropout": 0.1, "vocab_size": 32000},
    # Row A: the number of heads, the total width of keys and values held constant.
    "A-h1": _heads(1),
    "A-h4": _heads(4),
    "A-h16": _heads(16),
    "A-h32": _heads(32),
    # Row B: the width of the keys; the values keep their 64.
    "B-dk16": {"d_k": 16},
    "B-dk32": {"d_k": 32},
    # Row C: depth and widths.
    "C-N2": _layers(2),
    "C-N4": _layers(4),
    "C-N8": _layers(8),
    "C-d256": {"d_model": 256},
    "C-d1024": {"d_model": 1024},
    "C-ff1024": _ffn(1024),
    "C-ff4096": _ffn(4096),
    # Row D: regularisation.
    "D-dropout0.0": {"dropout": 0.0},
    "D-dropout0.2": {"dropout": 0.2},
    "D-smoothing0.0": {"label_smoothing": 0.0},
    "D-smoothing0.2": {"label_smoothing": 0.2},
    # Row E: learned positions in place of sinusoids.
    "E-learned": {"position_encoding": "learned"},
    # Not in the paper: the size at which small corpora such as Multi30k are reported (Wu et al. 2021), with the gain
    # of torch's own linear layers.
    "tiny": {
        **_layers(4),
        **_ffn(256),
        **_heads(4),
        "d_model": 128,
        "initializer": "glorot",
        "initializer_gain": 3**-0.5,
    },
}
