"""How good translations are: several figures, each under its own name and with the signature it is comparable under.

| name | what it is |
|---|---|
| `sacrebleu` | BLEU of plain text in sacreBLEU's own tokens (13a): the figure to report |
| `paper_bleu` | BLEU of Moses tokens with hyphenated compounds split: the one in the paper's tables |
| `tokenized_bleu` | BLEU of Moses tokens as they are: what Multi30k results are published in, there lower-cased |
| `chrf`, `ter` | character F-score; edits a reference word, of which fewer are better |

`paper_bleu` and `tokenized_bleu` count as Moses's multi-bleu.perl does. Their tokens come from sacremoses
(`pip install vanilla-transformer[moses]`) unless the text is tokenised already; without it they are left out.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest
from transformers.utils import logging


logger = logging.get_logger(__name__)

# White space to Python's split(), but part of a word to multi-bleu.perl: a no-break space, for instance.
NOT_ASCII_SPACE = re.compile(r"[^\S \t\n\r\f\v]")


class Figure(NamedTuple):
    """A score, and how it was made: scores with different signatures can't be compared."""

    score: float
    signature: str


@dataclass(frozen=True)
class Measure:
    """One way to score translations.

    Args:
        metric: The metric of sacreBLEU that counts.
        prepare: What is done to each sentence before.
        tokens: What that makes of it, for the signature; `None` if the metric's own signature says it all.
    """

    metric: Metric
    prepare: Callable[[str], str] = str
    tokens: str | None = None

    def __call__(self, hypotheses: Sequence[str], references: Sequence[str]) -> Figure:
        require_same_number(hypotheses, references)
        score = self.metric.corpus_score(self.prepared(hypotheses), [self.prepared(references)]).score
        return Figure(score, self.sign(self.metric.get_signature()))

    def prepared(self, sentences: Sequence[str]) -> list[str]:
        return [self.prepare(sentence) for sentence in sentences]

    def sign(self, signature) -> str:
        if self.tokens:
            signature.update("tok", self.tokens)
        return str(signature)


def measures(
    *, target_lang: str = "de", tokenized: bool = False, lowercase: bool = False, sacrebleu_tokens: str = "13a"
) -> dict[str, Measure]:
    """All measures by name.

    Args:
        target_lang: Language of the translations, whose abbreviations Moses's tokeniser knows.
        tokenized: Whether the text is tokenised already.
        lowercase: Whether `tokenized_bleu`, and only that, is of lower-cased text.
        sacrebleu_tokens: sacreBLEU's tokenisation, for example `"zh"` for Chinese.
    """
    if tokenized:
        logger.warning_once("sacrebleu is of tokenised text here: comparable figures are of plain text.")
    # It warns of such text itself, at every call, unless forced.
    found = {"sacrebleu": Measure(BLEU(tokenize=sacrebleu_tokens, force=tokenized))}
    tokenize, tokens = (str, "given") if tokenized else _moses(target_lang)
    if tokenize is not None:
        found["paper_bleu"] = _multi_bleu(lambda text: split_compounds(tokenize(text)), f"{tokens}+compounds")
        # Multi30k's files were lower-cased before they were tokenised, which changes what is an abbreviation.
        cased = (lambda text: tokenize(text.lower())) if lowercase else tokenize
        found["tokenized_bleu"] = _multi_bleu(cased, tokens, lowercase=lowercase)
    return {**found, "chrf": Measure(CHRF()), "ter": Measure(TER())}


def measure(hypotheses: Sequence[str], references: Sequence[str], **options) -> dict[str, Figure]:
    """Every figure there is; the options are those of `measures`."""
    return {name: figure_of(hypotheses, references) for name, figure_of in measures(**options).items()}


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Figure:
    """sacreBLEU's score and signature."""
    return Measure(BLEU())(hypotheses, references)


def require_same_number(hypotheses: Sequence[str], references: Sequence[str], what: str = "hypotheses") -> None:
    if not references:
        raise ValueError("There are no references: nothing can be measured.")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"There are {len(hypotheses):,} {what} but {len(references):,} references: line n of one must belong to "
            "line n of the other. Are they of the same test set?"
        )


# --- the BLEU of papers ---


def split_compounds(text: str) -> str:
    """Makes three tokens of "rich-text": `perl -ple 's{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g'`, the paper's own step.

    A match takes up the letter behind its hyphen, so the second hyphen of "a-b-c" stays, while "aa-bb-cc" is split
    twice. Perl reads bytes there, and so does this: "a-ü-b" is split twice, for ü has two.
    """
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", text.encode()).decode()


def _multi_bleu(prepare: Callable[[str], str], tokens: str, *, lowercase: bool = False) -> Measure:
    """multi-bleu.perl: words between ASCII white space, up to four of them, no smoothing. (But all letters are
    lower-cased, where its option -lc knows only those of ASCII.)"""
    metric = BLEU(tokenize="none", smooth_method="none", force=True, lowercase=lowercase)
    return Measure(metric, lambda text: NOT_ASCII_SPACE.sub(_code_point, prepare(text)), tokens)


def _code_point(found: re.Match) -> str:
    return f"U+{ord(found[0]):04X}"


def _moses(language: str) -> tuple[Callable[[str], str] | None, str]:
    """Moses's tokeniser for a language, and its name; None if it is not installed."""
    try:
        from sacremoses import MosesTokenizer
    except ImportError:
        logger.warning_once(
            "No paper_bleu and tokenized_bleu: they need tokens, and sacremoses is not installed (pip install "
            "vanilla-transformer[moses]). For text that is tokenised already, set tokenized."
        )
        return None, ""
    tokenizer = MosesTokenizer(language)
    return lambda text: tokenizer.tokenize(text, return_str=True), f"moses-{language}-{version('sacremoses')}"


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
    references: Sequence[str],
    bounds: Sequence[int] = (10, 20, 30, 40, 50),
    figure_of: Measure | None = None,
) -> list[Bucket]:
    """sacreBLEU of the sentences of each length; lengths that no source has are left out.

    Args:
        sources: The sources, by whose number of words sentences are told apart.
        hypotheses: The translations.
        references: What they are measured against.
        bounds: The longest source of each bucket but the last, ascending.
        figure_of: What to measure; sacreBLEU's default if not given.
    """
    require_same_number(hypotheses, references)
    figure_of = figure_of or Measure(BLEU())
    places: dict[int, list[int]] = {}
    for place, source in enumerate(sources):
        places.setdefault(bisect_left(bounds, len(source.split())), []).append(place)
    edges = [None, *bounds, None]
    buckets = []
    for number, chosen in sorted(places.items()):
        found = figure_of([hypotheses[place] for place in chosen], [references[place] for place in chosen])
        buckets.append(Bucket(edges[number], edges[number + 1], len(chosen), found.score))
    return buckets


# --- against another system ---


class Comparison(NamedTuple):
    """Two systems on the same sentences.

    Args:
        system: Score of the one.
        baseline: Score of the other.
        p_value: How often chance alone makes a difference as large.
        interval: Half the width of the 95% confidence interval around the system's score.
        baseline_interval: That of the baseline.
        signature: How the scores were made, with samples and seed.
    """

    system: float
    baseline: float
    p_value: float
    interval: float
    baseline_interval: float
    signature: str


def paired_bootstrap(
    system: Sequence[str], baseline: Sequence[str], references: Sequence[str], by: Measure, samples: int = 1000
) -> Comparison:
    """sacreBLEU's paired bootstrap resampling (Koehn 2004, "Statistical Significance Tests for Machine Translation
    Evaluation"); its seed is that of the environment variable SACREBLEU_SEED, 12345 by default."""
    require_same_number(system, references)
    require_same_number(baseline, references, "hypotheses of the baseline")
    named = [("baseline", by.prepared(baseline)), ("system", by.prepared(system))]
    test = PairedTest(named, {"metric": by.metric}, [by.prepared(references)], test_type="bs", n_samples=samples)
    signatures, results = test()
    ((name, signature),) = signatures.items()
    before, now = results[name]
    # sacreBLEU counts only larger differences than the one seen, so it finds equal systems significantly different.
    p_value = 1.0 if now.score == before.score else now.p_value
    return Comparison(now.score, before.score, p_value, float(now.ci), float(before.ci), by.sign(signature))


# --- learned metrics ---


def comet(name_or_path: str, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Figure:
    """The score of a COMET model: a checkpoint file, or a name that COMET then downloads."""
    require_comet()
    import torch
    from comet import download_model, load_from_checkpoint

    path = name_or_path
    if not Path(path).is_file():
        logger.warning(f"COMET looks for {name_or_path} in its cache, and downloads it if it is not there.")
        path = download_model(name_or_path)
    rows = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]
    prediction = load_from_checkpoint(path).predict(rows, batch_size=16, gpus=int(torch.cuda.is_available()))
    return Figure(float(prediction.system_score), f"{name_or_path}|version:{version('unbabel-comet')}")


def require_comet() -> None:
    try:
        import comet  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"COMET is not installed ({error}): pip install unbabel-comet, or leave out --comet."
        ) from error
