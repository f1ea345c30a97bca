"""Residuals and normalisation: gradients by layer, deep stacks without warm-up, BatchNorm beside LayerNorm."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerPostNorm
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.copying import batches, learn, make_model, smooth
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture


POST, PRE, NONE = "post-norm", "pre-norm", "no residual"
SHOWN_DEPTH = 12
ZERO = "A gradient that is zero in float32 counts as 1e-30 in ratios."
WIDTH: dict[str, Any] = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "initializer_gain": 1.0}
DEEP: dict[str, Any] = {**WIDTH, "encoder_layers": SHOWN_DEPTH, "decoder_layers": SHOWN_DEPTH}


def explain(options: ExplainArguments) -> Explanation:
    """Gradients by layer for post-norm, pre-norm and no residual; deep stacks; BatchNorm beside LayerNorm."""
    depths = options.choose([2, 6, 12, 24, 48], quick=[2, 12])
    norms = {name: {depth: gradient_norms(name, depth) for depth in depths} for name in (POST, PRE, NONE)}
    gradients = Table(
        "gradient norm of each decoder layer's fc2 at initialisation, one random batch",
        {"lowest layer": "{:.2g}", "highest layer": "{:.2g}", "highest / lowest": "{:.2g}"},
        {
            f"{name}, {depth} layers": {
                "lowest layer": layers[0],
                "highest layer": layers[-1],
                "highest / lowest": layers[-1] / max(layers[0], 1e-30),
            }
            for name, by_depth in norms.items()
            for depth, layers in by_depth.items()
        },
        notes=[ZERO],
    )
    updates = options.choose(100, quick=10)
    curves = deep_losses(updates)
    trained = Table(
        f"learning to copy, {SHOWN_DEPTH} + {SHOWN_DEPTH} layers, {updates} updates at a rate of 0.001, no warm-up",
        {"first loss": "{:.2f}", "last loss": "{:.2f}"},
        {name: {"first loss": losses[0], "last loss": losses[-1]} for name, losses in curves.items()},
        notes=["Means of ten updates."],
    )
    normalisations = compare_normalisations(options)
    rows = [[by_layer(norms), by_depth(norms, depths), losses_panel(curves)], draw_normalisations(normalisations)]
    title = "Residuals and norms: gradients, deep stacks, and what a batch does to a token"
    return Explanation([gradients, trained, *normalisations], [Picture(title, rows)])


# --- gradients at initialisation ---


class NoResidual(VanillaTransformerPostNorm):
    """LayerNorm(Dropout(Sublayer(x))): the paper's sub-layer without its residual."""

    def forward(self, hidden_states: torch.Tensor, sublayer: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        return self.norm(self.dropout(sublayer(hidden_states)))


def gradient_norms(name: str, depth: int) -> list[float]:
    """Gradient norm of the last matrix of each decoder layer, from the lowest to the highest (Xiong et al. 2020)."""
    torch.manual_seed(0)
    config = VanillaTransformerConfig.from_preset(
        "tiny",
        vocab_size=200,
        **WIDTH,
        encoder_layers=1,
        decoder_layers=depth,
        norm_placement="pre" if name == PRE else "post",
    )
    model = VanillaTransformerForConditionalGeneration(config).eval()
    if name == NONE:
        for module in list(model.modules()):
            for child, residual in list(module.named_children()):
                if isinstance(residual, VanillaTransformerPostNorm):
                    setattr(module, child, NoResidual(config).eval())
    ids = torch.randint(4, 200, (16, 12))
    model(input_ids=ids, labels=ids.flip(1)).loss.backward()
    return [layer.feed_forward.fc2.weight.grad.norm().item() for layer in model.model.decoder.layers]


def by_layer(norms: dict[str, dict[int, list[float]]]) -> Curves:
    """Gradients over the layers of one depth."""
    layers = range(1, SHOWN_DEPTH + 1)
    curves = {name: by_depth[SHOWN_DEPTH] for name, by_depth in norms.items()}
    return Curves(f"gradient, {SHOWN_DEPTH} layers", "decoder layer", "gradient norm", layers, curves, log="y")


def by_depth(norms: dict[str, dict[int, list[float]]], depths: list[int]) -> Curves:
    """The highest layer's gradient relative to the lowest one's, over the depth."""
    curves = {
        name: [by_depth[depth][-1] / max(by_depth[depth][0], 1e-30) for depth in depths]
        for name, by_depth in norms.items()
    }
    return Curves("highest layer / lowest", "decoder layers", "ratio of gradients", depths, curves, log="xy")


# --- deep stacks without warm-up ---


def deep_losses(updates: int) -> dict[str, list[float]]:
    """Losses of deep models that learn to copy, with a constant rate from the first update on."""
    placements = {POST: "post", PRE: "pre"}
    return {
        name: smooth(learn(make_model(**DEEP, norm_placement=placement), batches(), updates, rate=1e-3))
        for name, placement in placements.items()
    }


def losses_panel(curves: dict[str, list[float]]) -> Curves:
    steps = [10 * number for number in range(1, 1 + len(curves[POST]))]
    title = f"no warm-up, {SHOWN_DEPTH} + {SHOWN_DEPTH} layers"
    return Curves(title, "update", "loss per token, nats", steps, curves, markers=False)


# --- BatchNorm beside LayerNorm ---

SENTENCES, TOKENS, FEATURES = 512, 10, 64
NORMS = ("BatchNorm", "LayerNorm")


def compare_normalisations(options: ExplainArguments) -> list[Table]:
    """How far the batch moves a sentence's normalised tokens: by its size, and by its padding."""
    states = torch.randn(FEATURES) + torch.randn(SENTENCES, 1, FEATURES) + torch.randn(SENTENCES, TOKENS, FEATURES)
    sizes = options.choose([2, 4, 8, 16, 32, 64, 128], quick=[2, 32])
    by_size = {f"{size}": moved(states[:size], states) for size in sizes}
    shares = (0.0, 0.25, 0.5, 0.75)
    by_padding = {f"{share:.0%}": moved(with_padding(states[:128], share), states[:128]) for share in shares}
    formats = dict.fromkeys(NORMS, "{:.3f}")
    note = "Root mean square of the change in the first sentence's tokens, which have a size of about 1."
    return [
        Table(f"sentences in the batch, beside a batch of {SENTENCES}", formats, by_size, notes=[note]),
        Table("share of padding (zeros) in a batch of 128, beside no padding", formats, by_padding, notes=[note]),
    ]


def with_padding(states: torch.Tensor, share: float) -> torch.Tensor:
    """Adds tokens of zeros at the end, so that they are this share of all."""
    return nn.functional.pad(states, (0, 0, 0, round(states.shape[1] * share / (1 - share))))


def moved(batch: torch.Tensor, reference: torch.Tensor) -> dict[str, float]:
    """How far the first sentence's tokens are from what they are in another batch, for both norms in training mode."""
    norms = {"BatchNorm": lambda x: nn.BatchNorm1d(FEATURES)(x.mT).mT, "LayerNorm": nn.LayerNorm(FEATURES)}
    tokens = reference.shape[1]
    with torch.no_grad():
        return {
            name: (norm(batch)[0, :tokens] - norm(reference)[0]).square().mean().sqrt().item()
            for name, norm in norms.items()
        }


def draw_normalisations(tables: list[Table]) -> list[Curves]:
    by_size, by_padding = tables
    panels: list[tuple[str, str, Table, Literal["", "x"]]] = [
        ("what small batches do", "sentences in the batch", by_size, "x"),
        ("what padding does", "padding, % of the tokens", by_padding, ""),
    ]
    return [
        Curves(
            title,
            label,
            "change of a token (RMS)",
            [int(name.rstrip("%")) for name in table.rows],
            {norm: [row[norm] for row in table.rows.values()] for norm in NORMS},
            log=log,
        )
        for title, label, table, log in panels
    ]
