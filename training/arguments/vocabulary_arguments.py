"""Recipe keys of the vocabulary."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from vanilla_transformer.command_line.parsing import key


@dataclass
class VocabularyArguments:
    """How the subword vocabulary is learned."""

    help_group: ClassVar[str] = "vocabulary"

    vocab_size: int = key(37000, "Size of the vocabulary, including 256 bytes and four special tokens.")
    algorithm: Literal["bpe", "wordpiece", "unigram"] = key("bpe", "Algorithm that learns the subwords.")
    separate: bool = key(
        False,
        "Learn separate vocabularies: the source tokenizer is in the folder, the target tokenizer in its subfolder "
        "`target`.",
    )
    normalization: Literal["nfc", "nfkc", "none"] = key("nfc", "Unicode normalisation of all text.")
    lowercase: bool = key(False, "Lower-case all text. This cannot be undone.")
    min_frequency: int = key(2, "How often two subwords must be adjacent to be merged (bpe and wordpiece).")
    vocabulary_pairs: int | None = key(
        None, "Learn from the first pairs only, about this many (rounded up to thousands)."
    )

    def __post_init__(self) -> None:
        for name in ("vocabulary_pairs", "min_frequency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")


@dataclass
class TokenizerArguments(VocabularyArguments):
    """How the vocabulary is learned, and where it is saved."""

    output_dir: str = key("tokenizer", "Folder for the tokenizer, for `AutoTokenizer.from_pretrained`.")
    overwrite: bool = key(False, "Replace an existing tokenizer.")
