"""Options of all commands that translate: how a model is loaded, and how it decodes."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from vanilla_transformer.models.beam_search import DEFAULT_EXTRA_TOKENS
from vanilla_transformer.translation.decoding_options import require_decoding
from vanilla_transformer.translation.long_texts import MAX_SOURCE_TOKENS

from .parsing import key


@dataclass
class DecodingArguments:
    """How a model translates: by default as its generation config says, else as in the paper."""

    help_group: ClassVar[str] = "decoding"

    num_beams: int | None = key(None, "Beam size, 1 for greedy search; by default the model's, else 4.")
    length_penalty: float | None = key(
        None, "Alpha of the length penalty, higher for longer output; by default the model's, else 0.6."
    )
    penalty: Literal["gnmt", "length"] | None = key(
        None, "gnmt: ((5 + length) / 6)^alpha, the default; length: length^alpha."
    )
    max_extra_tokens: int = key(
        DEFAULT_EXTRA_TOKENS, "Maximum number of tokens that a translation has more than its source."
    )

    iterations: int | None = key(
        None, "For mask_predict models: passes of the decoder; by default the model's, else 10."
    )
    length_candidates: int | None = key(
        None, "For mask_predict models: lengths tried for each sentence; by default the model's, else 5."
    )
    length_ratio: float | None = key(
        None, "For mask_predict models: factor on the predicted length, 0.8 for terser translations; default 1."
    )
    length_alpha: float | None = key(
        None,
        "For mask_predict models: lengths are ranked by log-probability / length^length_alpha, more for longer "
        "output; by default the model's, else 1.",
    )

    def __post_init__(self) -> None:
        checked = {name: value for name, value in vars(self).items() if name != "penalty"}
        require_decoding(**checked)


@dataclass
class LoadingArguments:
    """How a model is loaded to translate: options of `Translator.from_pretrained`."""

    help_group: ClassVar[str] = "loading"

    backend: Literal["torch", "ctranslate2", "onnx"] = key(
        "torch",
        "Engine that decodes; ctranslate2 is faster and keeps its converted model beside the original; onnx takes the "
        "output of vanilla convert onnx.",
    )
    quantization: str = key(
        "float32",
        "int8 for 8-bit weights: faster in ctranslate2, and in torch for models of base size and larger. ctranslate2 "
        "also has int16, float16, bfloat16, int8_float32, int8_float16 and int8_bfloat16.",
    )
    max_tokens: int = key(2048, "Maximum source tokens in a batch, padding included.")
    max_source_tokens: int = key(
        MAX_SOURCE_TOKENS, "Longest source in tokens. A longer one is cut with a warning, or see --long_texts."
    )
    long_texts: Literal["cut", "chunk"] = key(
        "cut", "What is done with longer sources: cut them, or chunk them at sentence ends and join the translations."
    )
    device: str | None = key(None, "Device, for example cpu or cuda:1; by default a GPU if there is one.")
    revision: str = key("main", "Branch, tag or commit of a model on the Hub.")
    trust_remote_code: bool = key(False, "Run the model code in a model's repository on the Hub.")
