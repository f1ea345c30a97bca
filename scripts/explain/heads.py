"""One wide head against several narrow ones, with equal parameters."""

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Columns, Panel, Picture
from vanilla_transformer.scripts.explain.trainings import FORMATS, PAPER, loss_curves, results, train_all


VARIANTS = {
    "1 head": {"encoder_attention_heads": 1, "decoder_attention_heads": 1},
    "paper": PAPER,
    "16 heads": {"encoder_attention_heads": 16, "decoder_attention_heads": 16},
}
LABELS = {"1 head": "1 head of 128", "paper": "4 heads of 32", "16 heads": "16 heads of 8"}


def explain(options: ExplainArguments) -> Explanation:
    """One wide head against several narrow ones with equal parameters: perplexity and BLEU. *"""
    runs = {LABELS[name]: folder for name, folder in train_all(VARIANTS, options).items()}
    rows = results(runs)
    table = Table(f"{options.updates} updates on the demo corpus, one seed", FORMATS, rows)
    panels: list[Panel] = [
        loss_curves(runs),
        Columns(
            f"validation set, after {options.updates} updates",
            "heads of width $d_k$",
            "perplexity",
            {name.replace(" of", "\nof"): {"perplexity": row["perplexity"]} for name, row in rows.items()},
        ),
    ]
    return Explanation([table], [Picture("The same parameters in one head or in several", [panels])])
