"""One wide head against several narrow ones, with equal parameters."""

import math

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.copying import DIGITS, LENGTH, SIZES, learn, make_model, pairs_to_name, smooth
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture


HEADS = (1, 4, 16)


def explain(options: ExplainArguments) -> Explanation:
    """One wide head against several narrow ones with equal parameters, where a token needs two others."""
    updates = options.choose(400, quick=20)
    curves, rows = {}, {}
    for heads in HEADS:
        name = f"{heads} head{'s' if heads > 1 else ''} of {SIZES['d_model'] // heads}"
        model = make_model(encoder_attention_heads=heads, decoder_attention_heads=heads)
        curves[name] = smooth(learn(model, pairs_to_name(), updates))
        quarters = {f"{part}/4": curves[name][part * len(curves[name]) // 4 - 1] for part in (2, 3, 4)}
        rows[name] = {**quarters, "parameters": model.num_parameters()}
    table = Table(
        f"naming tokens t and t + {LENGTH} of the source, {updates} updates: loss per token, mean of ten updates",
        {"2/4": "{:.2f}", "3/4": "{:.2f}", "4/4": "{:.2f}", "parameters": "{:,}"},
        rows,
        notes=[f"Columns: share of the updates. Equal guessing has a loss of {math.log(DIGITS**2):.2f}."],
    )
    points = [10 * number for number in range(1, 1 + updates // 10)]
    panel = Curves("a target token names two source tokens", "update", "loss per token, nats", points, curves)
    return Explanation([table], [Picture("The same parameters in one head or in several", [[panel]])])
