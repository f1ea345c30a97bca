"""Attention patterns by name: the classes that `config.attention_pattern` selects.

`FullAttention` in `full_attention.py` documents what a pattern is. A pattern from elsewhere is registered with
`PATTERNS["mine"] = MyPattern`.
"""

from .full_attention import FullAttention
from .longformer_attention import LongformerAttention
from .lsh_attention import LshAttention
from .window_attention import WindowAttention


PATTERNS: dict[str, type[FullAttention]] = {
    "full": FullAttention,
    "window": WindowAttention,
    "longformer": LongformerAttention,
    "lsh": LshAttention,
}
