"""A convolution computed by self-attention whose heads look at fixed offsets."""

import torch
from torch import nn
from torch.nn.functional import conv1d, pad

from vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerAttention
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, HeatMap, Picture


OFFSETS = (-1, 0, 1)  # a kernel of three: one head for each tap
D_MODEL = 8


def explain(options: ExplainArguments) -> Explanation:
    """A self-attention layer with fixed offsets that equals torch's conv1d."""
    length = options.choose(16, quick=8)
    kernel, bias = nn.Conv1d(D_MODEL, D_MODEL, len(OFFSETS)).parameters()
    inputs = torch.randn(2, length, D_MODEL)
    expected = conv1d(inputs.mT, kernel, bias, padding=1).mT  # [B, T, D]
    attention = attention_like(kernel, bias)
    rows: dict[str, dict[str, float]] = {}
    maps: dict[float, torch.Tensor] = {}
    for sharpness in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0):
        output, weights = convolve(attention, inputs, sharpness)
        difference = (output - expected).abs().max().item()
        rows[f"{sharpness:g}"] = {
            "largest difference": difference,
            "weight at the offset": weights.amax(-1).mean().item(),
        }
        maps[sharpness] = weights
    table = Table(
        f"self-attention with scores -s (key - query - offset)^2, offsets {OFFSETS}, beside torch's conv1d",
        {"largest difference": "{:.1e}", "weight at the offset": "{:.4f}"},
        rows,
        notes=["The first column is the sharpness s. Outputs are about 1 in size."],
    )
    return Explanation([table], [draw(rows, maps[2.0])])


def attention_like(kernel: torch.Tensor, bias: torch.Tensor) -> VanillaTransformerAttention:
    """The attention layer with the weights of a convolution.

    Queries and keys are zero, so that positions alone decide the scores. Every head passes the whole token on as its
    value, and the output projection has the kernel's matrix of each offset side by side.

    Args:
        kernel: [D, D, taps], as `conv1d` takes it.
        bias: [D].
    """
    heads = kernel.shape[2]
    config = VanillaTransformerConfig(d_model=D_MODEL, d_k=D_MODEL, d_v=D_MODEL)
    config._attn_implementation = "eager"
    layer = VanillaTransformerAttention(config, heads, layer_idx=0).eval().requires_grad_(False)
    for parameter in layer.parameters():
        parameter.zero_()
    layer.v_proj.weight.copy_(torch.eye(D_MODEL).repeat(heads, 1))
    layer.out_proj.weight.copy_(torch.cat(list(kernel.detach().unbind(-1)), dim=1))  # [D, heads * D]
    layer.out_proj.bias.copy_(bias.detach())
    return layer


def convolve(
    attention: VanillaTransformerAttention, inputs: torch.Tensor, sharpness: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the layer with the quadratic position bias of Cordonnier et al. (2020).

    Returns:
        The output [B, T, D] and the weights [H, T, T + 2]: the zeros on both sides are keys too.
    """
    inputs = pad(inputs, (0, 0, 1, 1))  # zeros on both sides, as `conv1d` has them
    places = torch.arange(inputs.shape[1])
    distances = places - places[:, None] - torch.tensor(OFFSETS)[:, None, None]  # [H, T, T]
    output, weights = attention(inputs, position_bias=-sharpness * distances.square()[None].float())
    assert weights is not None
    return output[:, 1:-1], weights[0, :, 1:-1]


def draw(rows: dict[str, dict[str, float]], weights: torch.Tensor) -> Picture:
    """The maps of two heads, and the difference from the convolution."""
    maps = [
        HeatMap(
            f"head for offset {offset:+d}, s = 2", "key", "query", weights[head, :, 1:-1].numpy(), "attention weight"
        )
        for head, offset in enumerate(OFFSETS)
        if offset
    ]
    differences = [row["largest difference"] for row in rows.values()]
    line = Curves(
        "difference from conv1d",
        "sharpness s of the heads",
        "largest difference",
        [float(name) for name in rows],
        {"difference": differences},
        log="y",
    )
    return Picture("Heads that look at fixed offsets compute a convolution", [[*maps, line]])
