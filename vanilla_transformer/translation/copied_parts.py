"""The stage of translation that copies what must not change: placeholders before a model, values after it.

A model whose config has `placeholders` reads `Write to ⟨1⟩.` instead of `Write to info@example.com.` In results the
address is back, in tokens and their weights, too. If a translation loses, doubles or invents a placeholder, the text
is translated as it is, and `Hypothesis.not_copied` names what the translation then changed. A text of nothing else is
its own translation. Of several translations, those without all placeholders are replaced by translations of the text
as it is, which come last.

A glossary is stronger: what is part of a term stays in the text. Terms inside an address do not count.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .confidence import Calibration, words_of
from .glossary import WORD_STARTS, folded
from .placeholders import find_placeholders, is_copied, protect, protect_like, restore
from .words import END, spelled, word_spans


if TYPE_CHECKING:
    from .translator import Hypothesis, Request

    Numbered = tuple[int, Request]
    Translate = Callable[[Sequence[Numbered]], list[list[Hypothesis]]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CopiedParts:
    """The stage for the texts of one call.

    Args:
        most: Placeholders that the model knows.
        empty: The translation of an empty text, which has the details that the call keeps.
        n_best: Translations of each text.
        complete: Whether translations are complete; not if the call limits their length.
        calibration: The model's calibration of confidence.
    """

    most: int
    empty: "Hypothesis"
    n_best: int = 1
    complete: bool = True
    calibration: Calibration | None = None

    def translate(
        self, texts: "Sequence[Numbered]", through: "Translate", again: "Translate | None" = None
    ) -> "list[list[Hypothesis]]":
        """Returns the translations of texts.

        Args:
            texts: The texts with their numbers.
            through: Translates protected texts with the model.
            again: Translates texts that lost a placeholder; `through` by default.
        """
        alone = [self._is_copied(request) for _, request in texts]
        protected = [
            (replace(request, text=""), ()) if is_alone else self._protected(request)
            for is_alone, (_, request) in zip(alone, texts, strict=True)
        ]
        translations = through([(number, request) for (number, _), (request, _) in zip(texts, protected, strict=True)])
        results, lost = [], []
        for index, (_, request) in enumerate(texts):
            if alone[index]:
                results.append([_copied(request.text, self.empty)] * self.n_best)
                continue
            found = (self._restored(each, request.text, protected[index][1]) for each in translations[index])
            results.append([hypothesis for hypothesis in found if hypothesis is not None])
            if len(results[index]) < self.n_best:
                lost.append(index)
        without = (again or through)([texts[index] for index in lost]) if lost else []
        for index, hypotheses in zip(lost, without, strict=True):
            kept = results[index]
            as_it_is = [_reported(each, protected[index][1]) for each in hypotheses[: self.n_best - len(kept)]]
            if not kept and (changed := as_it_is[0].not_copied):
                logger.warning(f"Text {texts[index][0]}: the translation changes {', '.join(map(repr, changed))}.")
            results[index] = kept + as_it_is
        return results

    def _is_copied(self, request: "Request") -> bool:
        """Whether a text is its own translation. One with a term of the glossary, or another prefix, is not."""
        text = request.text
        has_attention = self.empty.attention is not None  # every head of a text that no model has read
        return (
            bool(text.strip())
            and is_copied(text)
            and text.startswith(request.prefix or "")
            and not request.glossary.source_terms(text)
            and not has_attention
        )

    def _protected(self, request: "Request") -> "tuple[Request, tuple[str, ...]]":
        text, values = protect(request.text, self.most)
        terms = request.glossary.source_terms(request.text) if values else []
        if in_terms := {value for value in values if any(folded(value) in term for term in terms)}:
            text, values = protect(request.text, self.most, but=in_terms)
        prefix = request.prefix and (protect_like(request.prefix, values, complete=False) or request.prefix)
        return replace(request, text=text, prefix=prefix), values

    def _restored(self, hypothesis: "Hypothesis", source: str, values: tuple[str, ...]) -> "Hypothesis | None":
        return restored(hypothesis, source, values, calibration=self.calibration, complete=self.complete)


def protected_pair(source: str, target: str, most: int) -> tuple[str, str, tuple[str, ...]]:
    """Returns a source and a given translation with placeholders, and the values; both as they are if the translation
    has other values."""
    text, values = protect(source, most)
    translation = protect_like(target, values)
    return (text, translation, values) if translation is not None else (source, target, ())


def restored(
    hypothesis: "Hypothesis",
    source: str,
    values: tuple[str, ...],
    *,
    calibration: Calibration | None = None,
    complete: bool = True,
) -> "Hypothesis | None":
    """Returns a hypothesis with values in place of placeholders; `None` if it has not each of them.

    Each word of a value is a token. The first has the log-probability of the placeholder, the others 0.

    Args:
        hypothesis: The translation of a protected text.
        source: The text as it was.
        values: The values, by number.
        calibration: As of `words_of`.
        complete: Whether the translation must have all values.
    """
    if not values:
        return hypothesis
    text = restore(hypothesis.text, values, complete=complete)
    if text is None:
        return None
    changes: dict[str, Any] = {"text": text, "source": hypothesis.source and source}
    written, read = _groups(hypothesis.tokens, values), _groups(hypothesis.source_tokens, values)
    before = _groups(hypothesis.read_tokens, values)
    for name, groups in (("tokens", written), ("source_tokens", read), ("read_tokens", before)):
        changes[name] = tuple(word for group in groups for word in group.words)
    for name, rows, columns in (
        ("alignment_weights", written, read),
        ("attention", written, read),
        ("decoder_attention", written, before),
        ("encoder_attention", read, read),
    ):
        if (weights := getattr(hypothesis, name)) is not None:
            changes[name] = _spread(np.asarray(weights), rows, columns)
    if "alignment_weights" in changes:
        _align_values(changes["alignment_weights"], written, read)
    if hypothesis.log_probabilities is not None:
        row = []
        for group in written:
            total = math.fsum(hypothesis.log_probabilities[group.start : group.end])
            row += [total, *[0.0] * (len(group.words) - 1)]
        words = words_of(text, changes["tokens"], row, calibration)
        changes |= {"log_probabilities": tuple(row), "words": words}
    return replace(hypothesis, **changes)


@dataclass(frozen=True)
class _Group:
    """A token, or the tokens of placeholders with the words that take their place."""

    words: tuple[str, ...]
    start: int
    end: int
    is_value: bool = False


def _groups(tokens: Sequence[str], values: tuple[str, ...]) -> list[_Group]:
    """Groups the tokens of a placeholder and the spaces beside it. It may share a token with a neighbour: `(⟨`."""
    ends = list(accumulate(map(len, tokens)))
    spans = find_placeholders("".join(tokens))
    opening, closing = {start for start, _ in spans}, {end for _, end in spans}

    def is_border(index: int) -> bool:
        """Whether a group ends before the token."""
        if not 0 < index < len(tokens):
            return True
        at = ends[index - 1]
        after = tokens[index] in WORD_STARTS and at in closing
        before = (
            tokens[index - 1] in WORD_STARTS and at in opening and (ends[index - 2] if index > 1 else 0) not in closing
        )
        return not (after or before or any(start < at < end for start, end in spans))

    groups = []
    for start, end in pairwise(filter(is_border, range(len(tokens) + 1))):
        joined = "".join(tokens[start:end])
        if is_value := bool(find_placeholders(joined)):
            joined = "".join(token for token in tokens[start:end] if token not in WORD_STARTS)
        whole = restore(joined, values, complete=False) if is_value else None
        words = (joined,) if whole is None else tuple(spelled(whole, word_spans(whole)))
        groups.append(_Group(words, start, end, whole is not None))
    return groups


def _spread(weights: np.ndarray, rows: list[_Group], columns: list[_Group]) -> np.ndarray:
    """Returns weights [..., rows, columns] of words from those of tokens; rows keep their sums."""
    mean, share = _membership(rows), _membership(columns)
    mean, share = mean / mean.sum(0), share / share.sum(1, keepdims=True)
    return (mean.T @ weights @ share).astype(weights.dtype)


def _align_values(weights: np.ndarray, rows: list[_Group], columns: list[_Group]) -> None:
    """Aligns each word of a value with itself. Equal values share the weight as the model does."""
    for top, row in zip(_starts(rows), rows, strict=True):
        size = len(row.words)
        same = [
            left
            for left, column in zip(_starts(columns), columns, strict=True)
            if row.is_value and column.words == row.words
        ]
        if same:
            shares = [weights[top, left : left + size].sum() + np.finfo(weights.dtype).tiny for left in same]
            weights[top : top + size] = 0
            for left, share in zip(same, shares, strict=True):
                weights[top : top + size, left : left + size] = np.eye(size) * (share / sum(shares))


def _membership(groups: list[_Group]) -> np.ndarray:
    """[tokens, words], with a 1 where a word takes the place of a token."""
    matrix = np.zeros((groups[-1].end if groups else 0, sum(len(group.words) for group in groups)), np.float32)
    for left, group in zip(_starts(groups), groups, strict=True):
        matrix[group.start : group.end, left : left + len(group.words)] = 1
    return matrix


def _starts(groups: list[_Group]) -> list[int]:
    """Returns the index of the first word of each group."""
    return list(accumulate((len(group.words) for group in groups[:-1]), initial=0)) if groups else []


def _copied(text: str, empty: "Hypothesis") -> "Hypothesis":
    """Returns a text as its own translation, of which nothing is uncertain."""
    tokens = (*spelled(text, word_spans(text)), END)
    changes: dict[str, Any] = {"text": text}
    if empty.alignment_weights is not None:
        weights = np.eye(len(tokens), dtype=np.float32)
        changes |= {"source": text, "source_tokens": tokens, "tokens": tokens, "alignment_weights": weights}
    if empty.words is not None:
        row = (0.0,) * len(tokens)
        changes |= {"tokens": tokens, "log_probabilities": row, "words": words_of(text, tokens, row, None)}
    return replace(empty, **changes)


def _reported(hypothesis: "Hypothesis", values: tuple[str, ...]) -> "Hypothesis":
    """Names the values that a translation of the text as it is has not, or not as often."""
    missing = (value for value in values if hypothesis.text.count(value) < values.count(value))
    return replace(hypothesis, not_copied=tuple(dict.fromkeys(missing)))
