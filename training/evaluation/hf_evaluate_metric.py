"""The measures of `metrics.py` as a metric of the `evaluate` library.

    import evaluate

    metric = evaluate.load("training/evaluation/hf_evaluate_metric.py")
    metric.compute(predictions=["Die Katze schläft."], references=["Die Katze schläft."])["sacrebleu"]["score"]

`BleuMetric()` gives the same without a copy of this file in a cache. Neither needs the network.
"""

from typing import Any

import evaluate
from datasets import Features, List, Value

from vanilla_transformer.training.evaluation.metrics import measure


class BleuMetric(evaluate.Metric):
    """The measures of `metrics.py`; `compute` also takes the options of `measures`."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Quality of translations: scores, each with the signature that says how it was computed.",
            citation="",
            inputs_description="predictions: one string for each sentence; references: one string, or a list of them.",
            features=[
                Features({"predictions": Value("string"), "references": Value("string")}),
                Features({"predictions": Value("string"), "references": List(Value("string"))}),
            ],
        )

    def _compute(
        self, predictions: list[str], references: list[str] | list[list[str]], **options: Any
    ) -> dict[str, dict[str, Any]]:
        return {name: figure._asdict() for name, figure in measure(predictions, references, **options).items()}
