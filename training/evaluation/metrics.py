"""Measures of translation quality, each under its own name and with a signature that says how it was computed.

| name | what it is |
|---|---|
| `sacrebleu` | BLEU of plain text in sacreBLEU's tokens (13a): the score to report |
| `compound_bleu` | BLEU of Moses tokens with hyphenated compounds split, as in the authors' script of June 2017 |
| `compound_bleu_ascii_output` | the same with “ ” and other Unicode punctuation of the output replaced: since 2018 |
| `compound_bleu_ascii_both` | the same with that of the references replaced, too |
| `tokenized_bleu` | BLEU of unchanged Moses tokens: how Multi30k results are published, there lower-cased |
| `chrf`, `chrf++` | character F-score; the same with words and pairs of words |
| `ter` | edits per reference word, lower is better |

Which script printed the paper's 27.3 is not known. tensor2tensor's get_ende_bleu.sh splits compounds; since April 2018
it also runs Moses's replace-unicode-punctuation.perl on the output (which replaces “ ” but not „ « »), and one of its
authors says that the references need plain quotes, too (tensor2tensor issue 317). So there are three scores.

All but `sacrebleu`, `chrf`, `chrf++` and `ter` count as Moses's multi-bleu.perl does. Tokens and replacements come
from sacremoses (`pip install sacremoses`); without it these measures are left out, unless the text is already
tokenised.
"""

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.significance import PairedTest
from transformers.utils import logging

from vanilla_transformer.models.spelling import suggestion


logger = logging.get_logger(__name__)

COMPOUND_BLEUS = ("compound_bleu", "compound_bleu_ascii_output", "compound_bleu_ascii_both")
# Tokenisations of sacreBLEU for text whose words Moses's tokeniser does not find.
WITHOUT_SPACES = ("zh", "ja-mecab", "ko-mecab", "char")
NAMES = ("sacrebleu", *COMPOUND_BLEUS, "tokenized_bleu", "chrf", "chrf++", "ter")
# White space for Python's split(), but part of a word for multi-bleu.perl: a no-break space, for instance.
NOT_ASCII_SPACE = re.compile(r"[^\S \t\n\r\f\v]")


Reference = str | Sequence[str]  # the reference of a sentence, or several


class Figure(NamedTuple):
    """A score and its signature. Scores with different signatures cannot be compared."""

    score: float
    signature: str


@dataclass(frozen=True)
class Measure:
    """One way to score translations.

    Args:
        metric: The metric of sacreBLEU that counts.
        prepare: Applied to each sentence before counting.
        prepare_reference: Applied to each reference instead, if it is another function.
        tokens: The tokenisation that `prepare` does, for the signature; `None` if the metric's signature is complete.
    """

    metric: Metric
    prepare: Callable[[str], str] = str
    prepare_reference: Callable[[str], str] | None = None
    tokens: str | None = None

    def __call__(self, hypotheses: Sequence[str], references: Sequence[Reference]) -> Figure:
        require_same_number(hypotheses, references)
        score = self.metric.corpus_score(self.prepared(hypotheses), self.streams(references)).score
        return Figure(score, self.sign(self.metric.get_signature()))

    def streams(self, references: Sequence[Reference]) -> list[list[str]]:
        """Returns the references as the metric gets them: the first of each sentence, the second of each, ..."""
        several = [[one] if isinstance(one, str) else list(one) for one in references]
        if len(numbers := {len(one) for one in several}) > 1:
            raise ValueError(f"Sentences have {min(numbers)} to {max(numbers)} references: give each the same number.")
        prepare = self.prepare_reference or self.prepare
        return [[prepare(reference) for reference in stream] for stream in zip(*several, strict=True)]

    def prepared(self, sentences: Sequence[str]) -> list[str]:
        """Returns the sentences as the metric gets them."""
        return [self.prepare(sentence) for sentence in sentences]

    def sign(self, signature: Signature) -> str:
        """Returns the metric's signature with our tokenisation in it."""
        if self.tokens:
            signature.update("tok", self.tokens)
        return str(signature)


def measures(
    *,
    names: Sequence[str] = NAMES,
    target_lang: str = "de",
    tokenized: bool = False,
    lowercase: bool = False,
    sacrebleu_tokens: str = "13a",
) -> dict[str, Measure]:
    """Returns measures by name.

    Args:
        names: The measures to return; all by default.
        target_lang: Language of the translations. Moses's tokeniser knows its abbreviations.
        tokenized: Whether the text is already tokenised.
        lowercase: Whether to lower-case the text for `tokenized_bleu`, and only for that.
        sacrebleu_tokens: sacreBLEU's tokenisation, for example `"zh"` for Chinese. Text without spaces has no measures
            of Moses's tokens.
    """
    _require_names(names)
    chosen: dict[str, Measure] = {}
    if "sacrebleu" in names:
        if tokenized:
            logger.warning_once("sacrebleu is computed on tokenised text: comparable scores need plain text.")
        # force: sacreBLEU would warn about tokenised text itself, at every call.
        chosen["sacrebleu"] = Measure(BLEU(tokenize=sacrebleu_tokens, force=tokenized))
    if needs_tokens(names) and (tokenized or sacrebleu_tokens not in WITHOUT_SPACES):
        chosen |= _moses_measures(target_lang, tokenized, lowercase)
    chosen |= {"chrf": Measure(CHRF()), "chrf++": Measure(CHRF(word_order=2)), "ter": Measure(TER())}
    return {name: measure for name, measure in chosen.items() if name in names}


def _require_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in NAMES:
            raise ValueError(f"There is no measure {name!r}{suggestion(name, NAMES)}: choose from {', '.join(NAMES)}.")


def needs_tokens(names: Sequence[str]) -> bool:
    """Returns whether one of these measures needs Moses's tokens."""
    return bool({*COMPOUND_BLEUS, "tokenized_bleu"} & set(names))


def require_measures(names: Sequence[str]) -> None:
    """Refuses unknown measures, and those whose package is not installed: before a training, not after it."""
    _require_names(names)
    if needs_tokens(names) and find_spec("sacremoses") is None:
        wanted = " and ".join(name for name in names if needs_tokens([name]))
        raise ValueError(f"{wanted} need(s) the package sacremoses: pip install sacremoses, or leave it out.")


def measure(hypotheses: Sequence[str], references: Sequence[Reference], **options: Any) -> dict[str, Figure]:
    """Returns the figure of each measure; the options are those of `measures`."""
    return {name: figure_of(hypotheses, references) for name, figure_of in measures(**options).items()}


def bleu(hypotheses: Sequence[str], references: Sequence[Reference]) -> Figure:
    """Returns sacreBLEU's score and signature."""
    return Measure(BLEU())(hypotheses, references)


def require_same_number(hypotheses: Sequence[str], references: Sequence[Reference], what: str = "hypotheses") -> None:
    """Raises a ValueError unless each hypothesis has a reference."""
    if not references:
        raise ValueError("There are no references: nothing can be measured.")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"There are {len(hypotheses):,} {what} but {len(references):,} references: line n of one must belong to "
            "line n of the other. Are they of the same test set?"
        )


# --- the BLEU of papers ---


def split_compounds(text: str) -> str:
    """Splits "rich-text" into three tokens: `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'`, as the paper did.

    A match consumes the character after its hyphen, so the second hyphen of "a-b-c" stays, while "aa-bb-cc" is split
    twice. Perl works on bytes, and so does this function: "a-ü-b" is split twice, because ü has two bytes.
    """
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", text.encode()).decode()


def _moses_measures(target_lang: str, tokenized: bool, lowercase: bool) -> dict[str, Measure]:
    """The measures of tokens, or nothing where Moses's tokeniser is needed and not installed. Tokens that are given
    are left as they are."""
    if not tokenized and find_spec("sacremoses") is None:
        logger.warning_once(
            "No compound_bleu and tokenized_bleu: they need tokens, and sacremoses is not installed (pip install "
            "sacremoses). For text that is already tokenised, set tokenized."
        )
        return {}
    tokenize, tokens = (str, "given") if tokenized else _moses(target_lang)
    # Multi30k's files were lower-cased before they were tokenised, which changes what is an abbreviation.
    cased = (lambda text: tokenize(text.lower())) if lowercase else tokenize

    def split(text: str) -> str:
        return split_compounds(tokenize(text))

    chosen = {
        "compound_bleu": _multi_bleu(split, f"{tokens}+compounds"),
        "tokenized_bleu": _multi_bleu(cased, tokens, lowercase=lowercase),
    }
    if find_spec("sacremoses") is not None:
        to_ascii = _ascii_punctuation()
        output, both = (f"{tokens}+compounds+ascii-{side}" for side in ("output", "both"))
        chosen["compound_bleu_ascii_output"] = _multi_bleu(lambda text: split(to_ascii(text)), output, split)
        chosen["compound_bleu_ascii_both"] = _multi_bleu(lambda text: split(to_ascii(text)), both)
    return {name: chosen[name] for name in NAMES if name in chosen}


def _multi_bleu(
    prepare: Callable[[str], str],
    tokens: str,
    prepare_reference: Callable[[str], str] | None = None,
    *,
    lowercase: bool = False,
) -> Measure:
    """multi-bleu.perl: words between ASCII white space, n-grams up to 4, no smoothing. (Unlike its option -lc, which
    knows only ASCII letters, `lowercase` lower-cases all letters.)"""
    metric = BLEU(tokenize="none", smooth_method="none", force=True, lowercase=lowercase)
    of_reference = prepare_reference or prepare
    return Measure(
        metric,
        lambda text: NOT_ASCII_SPACE.sub(_code_point, prepare(text)),
        lambda text: NOT_ASCII_SPACE.sub(_code_point, of_reference(text)),
        tokens,
    )


def _code_point(match: re.Match[str]) -> str:
    return f"U+{ord(match[0]):04X}"


def _moses(language: str) -> tuple[Callable[[str], str], str]:
    """Moses's tokeniser for a language, and its name."""
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(text, return_str=True), f"moses-{language}-{version('sacremoses')}"


def _ascii_punctuation() -> Callable[[str], str]:
    """Moses's replace-unicode-punctuation.perl."""
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer().replace_unicode_punct


# --- the BLEU of a course ---


def course_bleu(hypothesis: str, reference: str, longest: int = 2) -> float:
    """Returns the BLEU, from 0 to 1, that the course behind the recipe `course` prints for a sentence.

    exp(min(0, 1 - words of the reference / words of the hypothesis)) times the precisions of n-grams up to `longest`,
    each to the power 1/2^n. It is not comparable with any other BLEU: it counts single sentences and their words
    between white space, and its exponents do not sum to one.
    """
    words, wanted = hypothesis.split(), reference.split()
    if not words:
        return 0.0
    score = math.exp(min(0.0, 1 - len(wanted) / len(words)))
    for n in range(1, min(longest, len(words)) + 1):
        ours, theirs = (Counter(zip(*(side[start:] for start in range(n)), strict=False)) for side in (words, wanted))
        score *= ((ours & theirs).total() / ours.total()) ** 0.5**n
    return score


# --- by sentence length ---


class Bucket(NamedTuple):
    """The sentences whose source has more than `above` and at most `up_to` words (by white space)."""

    above: int | None
    up_to: int | None
    sentences: int
    sacrebleu: float

    @property
    def label(self) -> str:
        if self.above is None or self.up_to is None:
            return f"≤ {self.up_to}" if self.above is None else f"> {self.above}"
        return f"{self.above + 1}–{self.up_to}"


def bleu_by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Reference],
    bounds: Sequence[int] = (10, 20, 30, 40, 50),
    figure_of: Measure | None = None,
) -> list[Bucket]:
    """Returns sacreBLEU for each range of source lengths; ranges without a sentence are left out.

    Args:
        sources: The sources, whose number of words decides the range.
        hypotheses: The translations.
        references: The references.
        bounds: The longest source of each range but the last, ascending.
        figure_of: The measure; sacreBLEU's default if not given.
    """
    require_same_number(hypotheses, references)
    figure_of = figure_of or Measure(BLEU())
    indices_by_range: dict[int, list[int]] = {}
    for index, source in enumerate(sources):
        indices_by_range.setdefault(bisect_left(bounds, len(source.split())), []).append(index)
    edges = [None, *bounds, None]
    buckets = []
    for number, indices in sorted(indices_by_range.items()):
        figure = figure_of([hypotheses[index] for index in indices], [references[index] for index in indices])
        buckets.append(Bucket(edges[number], edges[number + 1], len(indices), figure.score))
    return buckets


# --- comparison with another system ---


class Comparison(NamedTuple):
    """Two systems on the same sentences.

    Args:
        system: Score of the system.
        baseline: Score of the baseline.
        p_value: Probability of a difference as large by chance alone.
        interval: Half the width of the 95% confidence interval of the system's score.
        baseline_interval: The same for the baseline.
        signature: How the scores were computed, with samples and seed.
    """

    system: float
    baseline: float
    p_value: float
    interval: float
    baseline_interval: float
    signature: str


def paired_bootstrap(
    system: Sequence[str], baseline: Sequence[str], references: Sequence[Reference], by: Measure, samples: int = 1000
) -> Comparison:
    """Compares two systems by sacreBLEU's paired bootstrap resampling.

    (Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation".) The environment variable
    SACREBLEU_SEED sets the seed, 12345 by default.
    """
    require_same_number(system, references)
    require_same_number(baseline, references, "hypotheses of the baseline")
    named: list[tuple[str, Sequence[str]]] = [("baseline", by.prepared(baseline)), ("system", by.prepared(system))]
    test = PairedTest(named, {"metric": by.metric}, by.streams(references), test_type="bs", n_samples=samples)
    signatures, results = test()
    ((name, signature),) = signatures.items()
    baseline_result: Any
    system_result: Any
    baseline_result, system_result = results[name]
    # sacreBLEU counts only differences larger than the observed one, so equal systems would get p = 0.
    p_value = 1.0 if system_result.score == baseline_result.score else system_result.p_value
    return Comparison(
        system=system_result.score,
        baseline=baseline_result.score,
        p_value=p_value,
        interval=float(system_result.ci),
        baseline_interval=float(baseline_result.ci),
        signature=by.sign(signature),
    )
