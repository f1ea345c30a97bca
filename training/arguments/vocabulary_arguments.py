"""Recipe keys of the vocabulary."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.translation.placeholders import MOST_PLACEHOLDERS


LARGEST_VOCABULARY = 10_000_000


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
    mark_capitals: bool = key(
        False,
        "Write capitals as marks beside small letters: WHERE, Where and where have the same subwords. Then a model "
        "reads and writes text in any case.",
    )
    min_frequency: int = key(2, "How often two subwords must be adjacent to be merged (bpe and wordpiece).")
    vocabulary_pairs: int | None = key(
        None, "Learn from this many pairs, drawn from the whole corpus; of a stream, the first ones (by thousands)."
    )
    vocabulary_temperature: float = key(
        5.0,
        "With several directions: how much small languages are repeated in the text to learn from. The share of a "
        "language with n sentences is proportional to n^(1/vocabulary_temperature).",
    )
    character_coverage: float | None = key(
        None,
        "Share of the characters of each language that are whole before subwords are learned (bpe): the rest may be "
        "split into bytes. By default 0.9995 with several directions, else 0. Chinese and Japanese need it.",
    )

    placeholders: int = key(
        0,
        "Number of placeholders in the vocabulary, at most 9. They replace addresses, prices and numbers that both "
        "sides of a pair have; in translation they are copied and never translated.",
    )
    added_subwords: int = key(
        0,
        "Continuing from a trained model (model_name_or_path): learn this many more subwords from the text of the "
        "languages that it does not know. Its own tokens stay as they are.",
    )
    new_vocabulary: bool = key(
        False,
        "Continuing from a trained model (model_name_or_path): learn a new vocabulary from the text of this run. A "
        "token that the model knew keeps its embedding, any other begins as the mean of the model's tokens for it.",
    )

    def __post_init__(self) -> None:
        if self.vocab_size > LARGEST_VOCABULARY:
            raise ValueError(f"vocab_size={self.vocab_size} must be at most {LARGEST_VOCABULARY:,}; 37,000 is usual.")
        if self.added_subwords < 0:
            raise ValueError(f"added_subwords={self.added_subwords} must be at least 0.")
        if self.added_subwords and self.new_vocabulary:
            raise ValueError(
                f"added_subwords={self.added_subwords} is for the model's own vocabulary: leave out new_vocabulary."
            )
        if not 0 <= self.placeholders <= MOST_PLACEHOLDERS:
            raise ValueError(f"placeholders={self.placeholders} must lie between 0 and {MOST_PLACEHOLDERS}.")
        if self.mark_capitals and self.lowercase:
            raise ValueError("mark_capitals keeps the case of text and lowercase drops it: leave one of them out.")
        for name in ("vocabulary_pairs", "min_frequency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        if not self.vocabulary_temperature >= 1:
            raise ValueError(f"vocabulary_temperature={self.vocabulary_temperature} must be at least 1; 5 is usual.")
        if self.character_coverage is not None and not 0 <= self.character_coverage <= 1:
            raise ValueError(f"character_coverage={self.character_coverage} must lie between 0 and 1.")
        if self.character_coverage and self.algorithm != "bpe":
            raise ValueError(f"character_coverage needs algorithm bpe, not {self.algorithm}: leave it out.")


@dataclass
class TokenizerArguments(VocabularyArguments):
    """How the vocabulary is learned, and where it is saved."""

    output_dir: str = key("tokenizer", "Folder for the tokenizer, for `AutoTokenizer.from_pretrained`.")
    overwrite: bool = key(False, "Replace an existing tokenizer.")
