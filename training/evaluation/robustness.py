"""BLEU of one test set in the forms that people type: how much a model loses when text is not as its corpus was."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from vanilla_transformer.training.data.augmentation import FORMS, TWO_SENTENCES, Pair, joined
from vanilla_transformer.training.evaluation.metrics import measures


CLEAN = "clean"


def forms_of(pairs: Sequence[Pair], seed: int = 0) -> dict[str, list[Pair]]:
    """Returns a test set as it is and in each form, the same at every call: those that change every sentence."""
    forms = {CLEAN: list(pairs)}
    for name, form in FORMS.items():
        if name not in ("copied", "one_clause"):
            random = Random(f"{seed} {name}")
            forms[name] = [form(pair, random) for pair in pairs]
    following = [*pairs[1:], *pairs[:1]]
    forms[TWO_SENTENCES] = [
        Pair(*(joined(one, other) for one, other in zip(pair, after, strict=True)))
        for pair, after in zip(pairs, following, strict=True)
    ]
    return forms


def measure_robustness(
    pairs: Sequence[Pair], translate: Callable[[list[str]], list[str]], **options: Any
) -> dict[str, dict[str, Any]]:
    """Returns for each form its BLEU, with case and without, and the share that it loses of the clean text's.

    Args:
        pairs: Sources and references.
        translate: Translates sources.
        options: Options of `metrics.measures`.
    """
    (measure,) = measures(names=("sacrebleu",), **options).values()
    figures: dict[str, dict[str, Any]] = {}
    for name, form in forms_of(pairs).items():
        texts, references = translate([pair.source for pair in form]), [pair.target for pair in form]
        lowered = measure([text.lower() for text in texts], [text.lower() for text in references]).score
        bleu = measure(texts, references)
        clean = figures.get(CLEAN, {"lowercase": lowered})["lowercase"]
        figures[name] = {**bleu._asdict(), "lowercase": lowered, "lost": 1 - lowered / clean if clean else 0.0}
    return figures
