"""What dropout does in training, and that it is off in testing."""

from itertools import cycle

import torch

from vanilla_transformer import VanillaTransformerForConditionalGeneration
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.copying import BATCH, LENGTH, draw_sequences, learn, loss_of, make_model
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Columns, Curves, Panel, Picture


RATES = (0.0, 0.1, 0.3)
SEQUENCES = 2 * BATCH  # so few that a model can learn them by heart
TRAINING, TESTING = "passes in training mode", "passes in test mode"


def explain(options: ExplainArguments) -> Explanation:
    """Dropout on few data: known against unseen sequences, and passes in training and in test mode."""
    rounds, updates = options.choose((8, 25), quick=(2, 5))
    known: dict[str, list[float]] = {}
    unseen: dict[str, list[float]] = {}
    passes: dict[str, dict[str, float]] = {}
    for rate in RATES:
        model, name = make_model(dropout=rate), f"dropout {rate}"
        known[name], unseen[name] = learn_few(model, rounds, updates)
        passes[name] = spread_of_passes(model)
    table = Table(
        f"learning to copy from {SEQUENCES} sequences, {rounds * updates} updates: loss in test mode",
        {"known": "{:.2f}", "unseen": "{:.2f}", "least unseen": "{:.2f}", TRAINING: "{:.3f}", TESTING: "{:.3f}"},
        {
            name: {
                "known": known[name][-1],
                "unseen": unseen[name][-1],
                "least unseen": min(unseen[name]),
                **passes[name],
            }
            for name in known
        },
        notes=["Passes: standard deviation of the logits over ten passes on the same sequence."],
    )
    steps = [updates * number for number in range(1, rounds + 1)]
    panels: list[Panel] = [
        Curves("sequences of the training", "update", "loss per token, nats", steps, known),
        Curves("unseen sequences", "update", "loss per token, nats", steps, unseen),
        Columns(
            "ten passes on one sequence",
            "mode of the model",
            "standard deviation of logits",
            {
                label: {name: row[column] for name, row in passes.items()}
                for label, column in (("training", TRAINING), ("test", TESTING))
            },
            "{:.2f}",
        ),
    ]
    title = "Dropout makes learning by heart harder; it is off in testing"
    return Explanation([table], [Picture(title, [panels])])


def learn_few(
    model: VanillaTransformerForConditionalGeneration, rounds: int, updates: int
) -> tuple[list[float], list[float]]:
    """Trains on the same few sequences, and returns the losses on them and on unseen ones after each round."""
    generator = torch.Generator().manual_seed(0)
    few, unseen = (draw_sequences(number, LENGTH, generator) for number in (SEQUENCES, 256))
    data = cycle(few.split(BATCH))
    known_losses, unseen_losses = [], []
    for _ in range(rounds):
        learn(model, data, updates)
        known_losses.append(loss_of(model, few))
        unseen_losses.append(loss_of(model, unseen))
    return known_losses, unseen_losses


@torch.no_grad()
def spread_of_passes(model: VanillaTransformerForConditionalGeneration) -> dict[str, float]:
    """Standard deviation of the logits over ten passes, in training mode and in test mode."""
    ids = torch.arange(4, 4 + LENGTH)[None]
    spreads = {}
    for name, is_training in ((TRAINING, True), (TESTING, False)):
        model.train(is_training)
        logits = torch.stack([model(input_ids=ids, decoder_input_ids=ids).logits for _ in range(10)])
        spreads[name] = logits.std(dim=0).mean().item()
    return spreads
