"""Position encodings: what they look like, and what they do beyond the trained length."""

import torch

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerEncoder
from vanilla_transformer.models.variants import POSITIONS, load
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.copying import batches, learn, make_model, right_tokens
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, HeatMap, Panel, Picture


ENCODINGS = ("sinusoidal", "learned", "concatenated", "relative", "rotary", "integer", "none")
TRAINED, TESTED = range(3, 9), (4, 8, 10, 12, 16)  # tokens of the sequences to copy
LENGTH, FEATURES = 60, (0, 8, 16, 32)  # what the line plots show
CONFIG = {"d_model": 128, "vocab_size": 2000}


def explain(options: ExplainArguments) -> Explanation:
    """Every position encoding as lines and as a map; shifts, distances, sizes; quality beyond the trained length."""
    updates = options.choose(600, quick=10)
    models = {name: learn_positions(name, updates) for name in ENCODINGS}
    quality = {
        name: {f"{length} tokens": 100 * right_tokens(model, length) for length in TESTED}
        for name, model in models.items()
    }
    beyond = Table(
        f"right tokens (%) in copying, trained on {TRAINED[0]} to {TRAINED[-1]} tokens, {updates} updates",
        dict.fromkeys(next(iter(quality.values())), "{:.0f}"),
        quality,
    )
    tables = [sizes(), shifts(), beyond]
    vectors = {name: encoding_of(models[name]) for name in ("learned", "relative")}
    looks = Picture("What position encodings look like", draw_encodings(vectors))
    length = Picture("Copying beyond the trained length", [[length_panel(quality)]], "_lengths")
    return Explanation(tables, [looks, length])


# --- quality beyond the trained length ---


def length_panel(quality: dict[str, dict[str, float]]) -> Curves:
    """Right tokens over the length, for each encoding."""
    curves = {name: list(row.values()) for name, row in quality.items()}
    title = f"trained on {TRAINED[0]} to {TRAINED[-1]} tokens"
    return Curves(title, "tokens of the sequence", "right tokens, %", TESTED, curves)


def learn_positions(name: str, updates: int) -> VanillaTransformerForConditionalGeneration:
    """Trains a model with a position encoding to copy short sequences."""
    model = make_model(position_encoding=name, max_position_embeddings=LENGTH)
    learn(model, batches(TRAINED), updates)
    return model


# --- sizes, shifts and distances ---


def vectors_of(name: str, positions: torch.Tensor) -> torch.Tensor:
    """What an encoding adds to the embeddings at these positions [T, D]."""
    encoding = load(POSITIONS[name])(VanillaTransformerConfig.from_preset("tiny", **CONFIG))
    return encoding(positions).float()


def sizes() -> Table:
    """Norms of embeddings, and of the vectors that are added to them."""
    encoder = VanillaTransformerEncoder(VanillaTransformerConfig.from_preset("tiny", **CONFIG, encoder_layers=1))
    with torch.no_grad():
        plain = encoder.embed_tokens.weight[4:].norm(dim=-1).mean().item()
        scaled = encoder.embed_tokens(torch.arange(4, 2000)).norm(dim=-1).mean().item()
    places = torch.tensor([1, 10, 100, 1000])
    added = {name: vectors_of(name, places).norm(dim=-1).tolist() for name in ("sinusoidal", "integer")}
    columns = ("embedding", "embedding x sqrt(d_model)", *added)
    rows = {
        f"position {place}": dict(zip(columns, (plain, scaled, *norms), strict=True))
        for place, *norms in zip(places.tolist(), *added.values(), strict=True)
    }
    return Table(
        "length (norm) of embeddings and of position vectors, d_model 128", dict.fromkeys(columns, "{:,.1f}"), rows
    )


def shifts() -> Table:
    """How well a rotation of the sinusoids at p gives those at p + k, for 1,000 positions p."""
    places = torch.arange(1000)
    here = vectors_of("sinusoidal", places)
    rows = {}
    for shift in (1, 10, 100):
        there = vectors_of("sinusoidal", places + shift)
        products = (here * there).sum(-1)
        rows[f"k = {shift}"] = {
            "rotation - true": (rotate_pairs(here, shift) - there).abs().max().item(),
            "PE(p) PE(p + k)": products.mean().item(),
            "its spread over p": (products.max() - products.min()).item(),
        }
    formats = {"rotation - true": "{:.0e}", "PE(p) PE(p + k)": "{:.2f}", "its spread over p": "{:.0e}"}
    return Table("sinusoids shifted by k positions: one rotation for all p", formats, rows)


def rotate_pairs(vectors: torch.Tensor, shift: int) -> torch.Tensor:
    """Rotates each pair (sine, cosine) [T, D] by `shift` times its frequency. The position is not needed."""
    angles = shift * torch.pow(10000.0, -torch.arange(0, vectors.shape[-1], 2) / vectors.shape[-1])
    sines, cosines = vectors[..., 0::2], vectors[..., 1::2]
    rotated = (sines * angles.cos() + cosines * angles.sin(), cosines * angles.cos() - sines * angles.sin())
    return torch.stack(rotated, dim=-1).flatten(-2)


# --- pictures ---


@torch.no_grad()
def encoding_of(model: VanillaTransformerForConditionalGeneration) -> torch.Tensor:
    """What a trained encoder's position encoding holds: vectors [T, D], or biases of heads and distances [H, T]."""
    encoding = model.get_encoder().embed_positions
    places = torch.arange(LENGTH)
    if encoding.acts_on == "scores":
        middle = LENGTH // 2
        return encoding.for_attention(places[middle : middle + 1], places)["position_bias"][0, :, 0]
    return encoding(places)


def draw_encodings(trained: dict[str, torch.Tensor]) -> list[list[Panel]]:
    """Maps, lines, and what follows from them."""
    places = torch.arange(LENGTH)
    rotary = load(POSITIONS["rotary"])(VanillaTransformerConfig.from_preset("tiny", **CONFIG), num_heads=4)
    cosines = rotary.for_attention(places, None)["rotation"][0][:, :16]
    maps = {"sinusoidal": vectors_of("sinusoidal", places), "learned": trained["learned"], "rotary (cosines)": cosines}
    heat = [
        HeatMap(name, "feature", "position", values.numpy(), "value", signed=True) for name, values in maps.items()
    ]
    lines = [
        Curves(
            name,
            "position",
            "value",
            places.tolist(),
            {f"feature {feature}": values[:, feature].tolist() for feature in features},
            markers=False,
        )
        for (name, values), features in zip(maps.items(), (FEATURES, FEATURES[:2], (0, 2, 4, 8)), strict=True)
    ]
    return [[*heat], [*lines], [distance_panel(), bias_panel(trained["relative"]), size_panel()]]


def distance_panel() -> Curves:
    """Products of sinusoids by distance: the same curve from everywhere."""
    offsets = torch.arange(-30, 31)
    curves = {}
    for start in (30, 100, 1000):
        here, there = vectors_of("sinusoidal", torch.tensor([start])), vectors_of("sinusoidal", start + offsets)
        curves[f"from p = {start}"] = (here * there).sum(-1).tolist()
    return Curves("sinusoidal: likeness", "distance k", "PE(p) · PE(p + k)", offsets.tolist(), curves, markers=False)


def bias_panel(bias: torch.Tensor) -> Curves:
    """The learned biases of a relative encoding, for each head."""
    offsets = [place - LENGTH // 2 for place in range(LENGTH)]
    curves = {f"head {number + 1}": head.tolist() for number, head in enumerate(bias)}
    return Curves("relative, after training", "key - query", "bias of the score", offsets, curves, markers=False)


def size_panel() -> Curves:
    """Norms of added vectors over the position."""
    table = sizes()
    places = [int(name.split()[1]) for name in table.rows]
    curves = {name: [row[name] for row in table.rows.values()] for name in table.formats}
    return Curves("length of the vectors", "position", "norm", places, curves, log="xy")
