import evaluate
import pytest

from vanilla_transformer.training.evaluation import hf_evaluate_metric as bleu_metric
from vanilla_transformer.training.evaluation.metrics import measure


HYPOTHESES = ["die Katze schläft hier", "ein Hund läuft im Park", "sie singen"]
REFERENCES = ["die Katze schläft hier", "ein Hund rennt im Park", "sie singen laut"]


@pytest.mark.parametrize("load", [bleu_metric.BleuMetric, lambda: evaluate.load(bleu_metric.__file__)])
def test_a_metric_of_the_evaluate_library_has_the_same_figures(load):
    metric = load()
    found = metric.compute(predictions=HYPOTHESES, references=REFERENCES, tokenized=True, lowercase=True)
    expected = measure(HYPOTHESES, REFERENCES, tokenized=True, lowercase=True)
    assert found == {name: figure._asdict() for name, figure in expected.items()}
    metric.add(prediction="die Katze schläft hier", reference="die Katze schläft hier")
    assert metric.compute()["sacrebleu"]["score"] == pytest.approx(100)


def test_only_the_measures_that_are_named_are_computed():
    scores = bleu_metric.BleuMetric().compute(predictions=HYPOTHESES, references=REFERENCES, names=["chrf"])
    assert scores == {"chrf": measure(HYPOTHESES, REFERENCES)["chrf"]._asdict()}
    with pytest.raises(ValueError, match=r"no measure 'chrff' \(did you mean 'chrf'\?\)"):
        measure(HYPOTHESES, REFERENCES, names=["chrff"])
