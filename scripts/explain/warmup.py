"""The paper's learning rate: why it rises before it falls."""

from typing import Any

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.copying import batches, learn, make_model, smooth
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture
from vanilla_transformer.training.learning_rate import peak_rate, share_of_peak


# d_model and warm-up steps: the paper has the first two.
SCHEDULES = {"base, 4,000 steps": (512, 4000), "big, 4,000 steps": (1024, 4000), "base, 8,000 steps": (512, 8000)}
RATES, WARMUP, LAYERS = (1e-3, 4e-3), 40, 3


def explain(options: ExplainArguments) -> Explanation:
    """The learning rate of the paper, and trainings with and without warm-up."""
    updates = options.choose(120, quick=10)
    curves = {
        f"{name}, {rate}": smooth(losses(rate, warmup, updates))
        for rate in RATES
        for name, warmup in (("warm-up", WARMUP), ("no warm-up", 0))
    }
    table = Table(
        f"learning to copy, {LAYERS} + {LAYERS} layers, post-norm: loss per token, mean of ten updates",
        {"first": "{:.2f}", "half": "{:.2f}", "last": "{:.2f}"},
        {
            name: {"first": values[0], "half": values[len(values) // 2], "last": values[-1]}
            for name, values in curves.items()
        },
        notes=[f"Names: schedule, peak rate. Warm-up: {WARMUP} of {updates} updates."],
    )
    steps = range(100, 20_001, 100)
    rates = {
        name: [peak_rate(d_model, warmup) * share_of_peak(step, warmup) for step in steps]
        for name, (d_model, warmup) in SCHEDULES.items()
    }
    points = [10 * number for number in range(1, 1 + updates // 10)]
    panels = [
        Curves("the paper's schedule", "update", "learning rate", steps, rates, markers=False),
        Curves(f"learning to copy, {LAYERS} + {LAYERS} layers", "update", "loss per token, nats", points, curves),
    ]
    return Explanation([table], [Picture("The learning rate rises, then falls", [panels])])


def losses(rate: float, warmup: int, updates: int) -> list[float]:
    """Losses of a post-norm model whose initial matrices have Glorot's full limits, each by itself."""
    sizes: dict[str, Any] = {"encoder_layers": LAYERS, "decoder_layers": LAYERS, "initializer_gain": 1.0}
    return learn(make_model(**sizes), batches(), updates, rate=rate, warmup=warmup)
