"""The paper's learning rate: why it rises before it falls."""

from dataclasses import replace

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture
from vanilla_transformer.scripts.explain.trainings import PAPER, loss_curve, train_one
from vanilla_transformer.training.schedule import peak_rate, share_of_peak


# d_model and warm-up steps: the paper has the first two.
SCHEDULES = {"base, 4,000 steps": (512, 4000), "big, 4,000 steps": (1024, 4000), "base, 8,000 steps": (512, 8000)}
CONSTANT = ["--lr_scheduler_type", "constant"]


def explain(options: ExplainArguments) -> Explanation:
    """The learning rate of the paper, and a training with and without warm-up. *"""
    half = replace(options, updates=max(options.updates // 2, 1))  # the first updates are what differs
    curves = {
        "warm-up": loss_curve(train_one("paper", PAPER, options)),
        "no warm-up": loss_curve(train_one("no_warmup", PAPER, half, CONSTANT)),
    }
    shown = len(curves["no warm-up"][0])
    curves = {name: (points[:shown], losses[:shown]) for name, (points, losses) in curves.items()}
    table = Table(
        "training loss on the demo corpus with the same peak rate, one seed",
        {f"update {point}": "{:.2f}" for point in curves["no warm-up"][0][4::5]},
        {
            name: {f"update {point}": loss for point, loss in zip(*curve, strict=True)}
            for name, curve in curves.items()
        },
    )
    steps = range(100, 20_001, 100)
    rates = {
        name: [peak_rate(d_model, warmup) * share_of_peak(step, warmup) for step in steps]
        for name, (d_model, warmup) in SCHEDULES.items()
    }
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
