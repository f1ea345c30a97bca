"""The figures of `evaluation.py` as a metric of the `evaluate` library.

    import evaluate

    metric = evaluate.load("training/bleu_metric.py")
    metric.compute(predictions=["Die Katze schläft."], references=["Die Katze schläft."])["sacrebleu"]["score"]

or, with no copy of this file in a cache, `metric = BleuMetric()`. Neither needs the network.
"""

import evaluate
from datasets import Features, Value

from vanilla_transformer.training.metrics import measure


class BleuMetric(evaluate.Metric):
    """sacreBLEU, the paper's BLEU, tokenised BLEU, chrF and TER; `compute` takes the options of `measures` too."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Quality of translations: each figure with the signature it is comparable under.",
            citation="",
            inputs_description="predictions and references: one string for each sentence.",
            features=Features({"predictions": Value("string"), "references": Value("string")}),
        )

    def _compute(self, predictions: list[str], references: list[str], **options) -> dict[str, dict]:
        return {name: figure._asdict() for name, figure in measure(predictions, references, **options).items()}
