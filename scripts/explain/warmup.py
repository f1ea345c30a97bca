"""The paper's learning rate: why it rises before it falls."""

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture
from vanilla_transformer.scripts.explain.trainings import FORMATS, PAPER, loss_curve, results, train_one
from vanilla_transformer.training.schedule import peak_rate, share_of_peak


# d_model and warm-up steps: the paper has the first two.
SCHEDULES = {"base, 4,000 steps": (512, 4000), "big, 4,000 steps": (1024, 4000), "base, 8,000 steps": (512, 8000)}
CONSTANT = ["--lr_scheduler_type", "constant"]


def explain(options: ExplainArguments) -> Explanation:
    """The learning rate of the paper, and a training with and without warm-up. *"""
    runs = {
        "warm-up": train_one("paper", PAPER, options),
        "no warm-up": train_one("no_warmup", PAPER, options, CONSTANT),
    }
    table = Table(
        f"{options.updates} updates on the demo corpus with the same peak rate, one seed", FORMATS, results(runs)
    )
    steps = range(100, 20_001, 100)
    rates = {
        name: [peak_rate(d_model, warmup) * share_of_peak(step, warmup) for step in steps]
        for name, (d_model, warmup) in SCHEDULES.items()
    }
    curves = {name: loss_curve(folder) for name, folder in runs.items()}
    panels = [
        Curves("the paper's schedule", "update", "learning rate", steps, rates, markers=False),
        Curves(
            "training loss, demo corpus",
            "update",
            "loss per token, nats",
            {name: points for name, (points, _) in curves.items()},
            {name: losses for name, (_, losses) in curves.items()},
            markers=False,
        ),
    ]
    return Explanation([table], [Picture("The learning rate rises, then falls", [panels])])
