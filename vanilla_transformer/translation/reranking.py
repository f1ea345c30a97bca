"""Noisy-channel reranking: among several translations, prefer one from which the text can be recovered.

    translator = RerankingTranslator(
        Translator.from_pretrained("runs/en_de/model"), Translator.from_pretrained("runs/de_en/model")
    )
    translator("A man reads.")

A model proposes translations y of a text x. A model of the reverse direction says how well each explains the text
(Yee et al. 2019, "Simple and Effective Noisy Channel Modeling for Neural Machine Translation"):

    score(y) = log P(y | x) / penalty(length of y) + weight * log P(x | y) / length of x

The first term is the score of the search. The lengths count tokens, end of sentence included.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from vanilla_transformer.engines.engine import Backend
from vanilla_transformer.hub.languages import Languages, agreed_languages

from .translator import Hypothesis, Translator


class RerankingTranslator:
    """Translates with one model and ranks its proposals with another. It has the main methods of a `Translator`.

    Args:
        translator: Proposes the translations.
        reverse: Translates the other way.
        weight: How much the reverse model counts.
        candidates: Number of proposals for each text; at most `num_beams` of the search.
    """

    def __init__(self, translator: Translator, reverse: Translator, *, weight: float = 1.0, candidates: int = 5):
        if candidates < 2:
            raise ValueError(f"candidates={candidates}: there is nothing to rank. Give 2 or more.")
        if len(translator.directions) == len(reverse.directions) == 1:
            agreed_languages(Languages(*reversed(translator.languages)), reverse.languages, "the reverse model")
        self.translator, self.reverse = translator, reverse
        self.weight, self.candidates = weight, candidates

    @property
    def backend(self) -> Backend:
        """The engine of the translator that proposes."""
        return self.translator.backend

    def __call__(self, texts: str | Iterable[str], **options: Any) -> str | list[str]:
        """Returns the best translation of each text as text; the options are those of `translate`."""
        if isinstance(texts, str):
            return next(self.translate([texts], **options))[0].text
        return [hypotheses[0].text for hypotheses in self.translate(texts, **options)]

    def translate(self, texts: Iterable[str], *, n_best: int = 1, **options: Any) -> Iterator[list[Hypothesis]]:
        """Yields the translations of each text, best first; the options are those of `Translator.translate`."""
        if isinstance(texts, str):
            raise ValueError("translate() takes several texts: put the one in brackets, or call translator(text).")
        if options.get("sample"):
            raise ValueError("Samples have no score to rank them by: leave out sample, or the reverse model.")
        if n_best > self.candidates:
            raise ValueError(f"n_best={n_best} is more than the {self.candidates} candidates: give more candidates.")
        languages = Languages(options.get("source_lang"), options.get("target_lang"))
        if not all(isinstance(language, str | None) for language in languages):
            raise ValueError("With a reverse model, all texts have the same languages: give one of each.")
        waiting = deque[str]()  # texts whose translations are not there yet, at most a window

        def noted() -> Iterator[str]:
            for text in texts:
                waiting.append(text)
                yield text

        proposals = self.translator.translate(noted(), n_best=self.candidates, **options)
        return self._ranked(waiting, proposals, n_best, languages)

    def _ranked(
        self, texts: deque[str], proposals: Iterator[list[Hypothesis]], n_best: int, languages: Languages
    ) -> Iterator[list[Hypothesis]]:
        while window := list(islice(proposals, self.translator.window)):
            sources = [texts.popleft() for _ in window]
            reverse_scores = self.reverse.score(
                (
                    (each.text, source)
                    for source, hypotheses in zip(sources, window, strict=True)
                    for each in hypotheses
                ),
                source_lang=languages.target,
                target_lang=languages.source,
            )
            for hypotheses in window:
                scores = [
                    (each.score or 0.0) + self.weight * reverse.log_probability / reverse.tokens
                    for each, reverse in zip(hypotheses, islice(reverse_scores, len(hypotheses)), strict=True)
                ]
                best = sorted(range(len(scores)), key=lambda index: -scores[index])[:n_best]
                yield [replace(hypotheses[index], score=scores[index]) for index in best]
