"""The contract between `Translator` and the engines that decode for it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from vanilla_transformer.models.search_options import SearchOptions


if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Array: TypeAlias = Any  # a tensor, or a numpy array in engines without torch


TokenIds = list[int]
FORCED = ("score()", "confidence=True")  # calls that need the log-probabilities of given tokens


class Generated(NamedTuple):
    """Translations of a batch, `num_return_sequences` for each source, best first.

    Args:
        sequences: Token ids of each translation, its prefix included. Padding may follow the end of sentence.
        scores: Log-probability divided by the length penalty; `None` for samples.
    """

    sequences: list[TokenIds]
    scores: list[float] | None


class Attention(NamedTuple):
    """Attention weights of one sentence pair with S source and T target tokens, without padding, on the CPU.

    They are tensors in torch and numpy arrays in engines without it.

    Args:
        encoder: Self-attention of the encoder: [layers, heads, S, S]; `None` for a recurrent encoder.
        decoder: Self-attention of the decoder: [layers, heads, T, T]; `None` for a recurrent decoder.
        cross: Attention of the decoder to the source: [layers, heads, T, S].
        alignment: The part of `cross` that aligns best: [T, S].
    """

    encoder: "Array | None"
    decoder: "Array | None"
    cross: "Array"
    alignment: "Array"


class Backend(Protocol):
    """An engine that decodes for a `Translator`. Several threads may call it at once.

    A backend is written in a file of its own and added to `vanilla_transformer.engines.BACKENDS`. It need not inherit
    from this class.
    """

    name: ClassVar[str]
    """The key in `BACKENDS`."""
    title: ClassVar[str]
    """The subject of sentences about it, such as "CTranslate2"."""
    quantizations: ClassVar[tuple[str, ...]]
    """The types of weights it can decode with. The first one is the default."""

    @classmethod
    def from_model(
        cls,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        target_tokenizer: "PreTrainedTokenizerBase | None" = None,
        *,
        quantization: str = "float32",
    ) -> "Backend":
        """Makes a backend of a model in memory."""

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, *, device: str | None = None, quantization: str = "float32", **options: Any
    ) -> "Backend":
        """Loads a model from a folder or the Hub; `options` are those of `from_pretrained`."""

    @property
    def model(self) -> Any:
        """What `translator.model` returns: an object with `config` and `generation_config`."""

    @property
    def config(self) -> Any:
        """The model's config."""

    @property
    def generation_config(self) -> Any:
        """The decoding settings that the model brings along."""

    @property
    def longest_input(self) -> int | None:
        """The most tokens that a source or a translation can have; `None` if there is no limit."""

    def require_options(self, options: dict[str, Any], *, sample: bool = False, glossary: bool = False) -> None:
        """Refuses options of `generate`, sampling or required terms if the engine does not have them."""

    def require_support(self, call: str) -> None:
        """Refuses `"attention=True"`, `"attend()"`, `"score()"` or `"confidence=True"` if the engine can't do it."""

    def set_seed(self, seed: int) -> None:
        """Sets the seed of the samples that follow (`do_sample`)."""

    def generate(
        self,
        sources: Sequence[TokenIds],
        prefixes: Sequence[TokenIds],
        *,
        search: SearchOptions | None,
        num_return_sequences: int = 1,
        **options: Any,
    ) -> Generated:
        """Translates a batch.

        Args:
            sources: Token ids of the sources, without padding.
            prefixes: The ids that each translation starts with: the decoder's first token, then those that are given.
                All have the same length.
            search: The options of the search; `None` draws samples.
            num_return_sequences: Number of translations of each source.
            options: Further options of `generate`: either `max_length` or `max_new_tokens` is among them.
        """

    def score(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[list[float]]:
        """Returns the log-probability of each token of each target, given the source and the tokens before it.

        Args:
            sources: Token ids of the sources, without padding.
            targets: Token ids of the translations: the decoder's first token, then the tokens that are scored.
        """

    def attend(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> list[Attention]:
        """Returns the attention weights of each pair.

        Args:
            sources: Token ids of the sources, without padding.
            targets: Token ids that the decoder reads.
        """
