"""Options of all commands that translate: how a model is loaded, and how it decodes."""

from dataclasses import dataclass, make_dataclass
from typing import Any, ClassVar, Literal

from vanilla_transformer.models.searches import require_values
from vanilla_transformer.translation.long_texts import MAX_SOURCE_TOKENS

from .parsing import key, search_fields


_SearchOptions: Any = make_dataclass(
    "_SearchOptions",
    search_fields(" By default the model's, else {default}."),
    namespace={"__module__": __name__},
)


@dataclass
class DecodingArguments(_SearchOptions):
    """How a model translates: by default as its generation config says, else as in the paper."""

    help_group: ClassVar[str] = "decoding"

    def __post_init__(self) -> None:
        require_values(**vars(self))


@dataclass
class LoadingArguments:
    """How a model is loaded to translate: options of `Translator.from_pretrained`."""

    help_group: ClassVar[str] = "loading"

    backend: Literal["auto", "torch", "ctranslate2"] = key(
        "auto",
        "Engine that decodes; auto is the fastest installed one with the translations of torch; ctranslate2 keeps its "
        "converted model beside the original.",
    )
    quantization: str = key(
        "float32",
        "Type of the weights in ctranslate2: int8 for 8 bits, which is faster, or int16, float16, bfloat16, "
        "int8_float32, int8_float16 and int8_bfloat16.",
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
    verbose: bool = key(False, "Say which engine --backend auto chose, and why.")


@dataclass
class TorchLoadingArguments(LoadingArguments):
    """How a model is loaded where results must not depend on which engines are installed."""

    backend: Literal["auto", "torch", "ctranslate2"] = key(
        "torch", "Engine that decodes, as in vanilla translate; auto is the fastest one."
    )
