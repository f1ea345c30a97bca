"""A glossary: terms of the source language and the translations that they must have.

    glossary = Glossary({"bike": "Fahrrad"})
    translator("A man rides a bike.", glossary=glossary)

Source terms are found as whole words, whatever their case. The longest term wins where several begin.
"""

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers.decoders import ByteLevel

from vanilla_transformer.safe_files.input_files import lines_of


if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerBase


FIRST_LETTER_WITHOUT_SPACES = "\u2e80"  # from here on are the scripts of East Asia, which put no spaces between words
_IN_WORD = r"[\w\u0300-\u036f]"  # also accents that compose with no letter
WORD_STARTS = ("Ġ", "▁")  # how byte-level and SentencePiece tokens mark the beginning of a word


class Glossary:
    """Terms and their translations.

    Args:
        terms: Source term -> target term.
    """

    def __init__(self, terms: Mapping[str, str]):
        if not isinstance(terms, Mapping) or not all(isinstance(term, str) for pair in terms.items() for term in pair):
            raise ValueError(f"The glossary {terms!r:.60} must map source terms to target terms, both text.")
        self.targets: dict[str, str] = {}
        for source, target in terms.items():
            if not source.strip() or not target.strip():
                raise ValueError(f"The glossary has an entry {source!r} -> {target!r}: give a term on both sides.")
            if self.targets.setdefault(folded(source), target.strip()) != target.strip():
                raise ValueError(f"The glossary has two translations of {source!r}: keep one of them.")
        longest_first = sorted(self.targets, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(_whole_words, longest_first))) if self.targets else None

    @classmethod
    def from_file(cls, path: str | Path) -> "Glossary":
        """Reads a text file with a source term, a tab and a target term on each line. Lines with # are comments."""
        path = Path(path)
        if not path.is_file():
            raise ValueError(f"There is no glossary {str(path)!r}: check the path.")
        terms: dict[str, str] = {}
        for number, line in enumerate(lines_of(path), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            cells = [cell.strip() for cell in line.split("\t")]
            if len(cells) != 2 or not all(cells):
                raise ValueError(f"{path}, line {number}: {line!r} is not a source term, a tab and a target term.")
            if terms.setdefault(folded(cells[0]), cells[1]) != cells[1]:
                raise ValueError(f"{path}, line {number}: {cells[0]!r} has two translations: keep one of them.")
        return cls(terms)

    def terms_for(self, text: str) -> list[str]:
        """Returns the target terms that the translation of a text must contain."""
        return list(dict.fromkeys(self.targets[term] for term in self.source_terms(text)))

    def source_terms(self, text: str) -> list[str]:
        """Returns the terms in a text, folded."""
        return [] if self.pattern is None else self.pattern.findall(folded(text))


def folded(text: str) -> str:
    """Returns a text without the differences that a glossary ignores: case, composition of letters, white space."""
    return unicodedata.normalize("NFC", " ".join(unicodedata.normalize("NFC", text).casefold().split()))


def _whole_words(term: str) -> str:
    """Returns a pattern for a folded term that is not part of a longer word."""
    before = f"(?<!{_IN_WORD})" if term[0] < FIRST_LETTER_WITHOUT_SPACES else ""
    after = f"(?!{_IN_WORD})" if term[-1] < FIRST_LETTER_WITHOUT_SPACES else ""
    return before + re.escape(term) + after


def continuing_tokens(tokenizer: "PreTrainedTokenizerBase", vocab_size: int) -> "torch.Tensor | None":
    """Marks the tokens that continue the word before them [V]; `None` for a tokenizer that does not show it.

    Args:
        tokenizer: The target's tokenizer.
        vocab_size: Tokens that the model writes.
    """
    import torch  # the search that needs this is torch's

    vocabulary = getattr(tokenizer, "target_encoder", None) or tokenizer.get_vocab()
    if not any(token.startswith(WORD_STARTS) for token in vocabulary):
        return None
    continues = torch.zeros(vocab_size, dtype=torch.bool)
    special = set(tokenizer.all_special_ids)
    for token, token_id in vocabulary.items():
        if token_id < vocab_size and token_id not in special:
            continues[token_id] = not token.startswith(WORD_STARTS) and ByteLevel().decode([token])[0].isalnum()
    return continues
