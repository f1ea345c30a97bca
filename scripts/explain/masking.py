"""Masks: what padding and later tokens leak without them, and why BERT masks tokens instead of scores."""

import torch
from torch import nn

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.models.modeling_vanilla_transformer import VanillaTransformerEncoder
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.copying import LENGTH, SIZES, batches, learn, make_model, right_tokens
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, HeatMap, Picture


CAUSAL, OPEN = "causal mask", "no causal mask"
MASKED, UNMASKED = "padding mask", "no padding mask"
START = 1  # the decoder's first token


def explain(options: ExplainArguments) -> Explanation:
    """Padding and causal masks: what leaks without them; masked tokens against masked scores."""
    models = {CAUSAL: make_model(is_causal=True), OPEN: make_model(is_causal=False)}
    updates = options.choose(300, quick=20)
    losses = {name: learn(model, batches(), updates) for name, model in models.items()}
    maps = {name: influence(model) for name, model in models.items()}
    leaks = Table(
        f"a decoder that learns to copy {LENGTH} tokens, {updates} updates",
        {"influence of later tokens": "{:.0%}", "loss in training": "{:.3f}", "right tokens in translating": "{:.0%}"},
        {
            name: {
                "influence of later tokens": maps[name].triu(1).sum(-1).mean().item(),
                "loss in training": losses[name][-1],
                "right tokens in translating": right_tokens(model),
            }
            for name, model in models.items()
        },
    )
    paddings = options.choose([0, 1, 2, 4, 8, 16], quick=[0, 4])
    moved = {
        f"{number}": {name: moved_by_padding(number, name == MASKED) for name in (MASKED, UNMASKED)}
        for number in paddings
    }
    padding = Table(
        "padding tokens after a sentence of 8: change of its encoding (RMS), which has a size of about 1",
        {MASKED: "{:.1e}", UNMASKED: "{:.1e}"},
        moved,
    )
    return Explanation([leaks, padding, hidden_token()], [draw(maps, losses, moved)])


# --- the causal mask ---


def influence(model: VanillaTransformerForConditionalGeneration) -> torch.Tensor:
    """How much the output at each position (rows) depends on the decoder's input at each position (columns).

    Norms of gradients, as shares of their sum in a row.
    """
    ids = torch.arange(4, 4 + LENGTH)[None]
    embeddings = model.model.decoder.embed_tokens(ids).detach().requires_grad_()
    logits = model.eval()(input_ids=ids, decoder_inputs_embeds=embeddings, use_cache=False).logits[0]
    probes = torch.randn(logits.shape[-1])
    rows = [torch.autograd.grad((row * probes).sum(), embeddings, retain_graph=True)[0][0] for row in logits]
    norms = torch.stack([row.norm(dim=-1) for row in rows])  # [T, T]
    return norms / norms.sum(-1, keepdim=True)


# --- the padding mask ---


@torch.no_grad()
def moved_by_padding(number: int, is_masked: bool) -> float:
    """How far padding moves the encoding of a sentence."""
    torch.manual_seed(0)
    encoder = VanillaTransformerEncoder(VanillaTransformerConfig.from_preset("tiny", **SIZES)).eval()
    sentence = torch.arange(4, 12)[None]
    padded = nn.functional.pad(sentence, (0, number))
    mask = padded.ne(encoder.config.pad_token_id).long() if is_masked else None
    alone = encoder(sentence).last_hidden_state
    return (encoder(padded, mask).last_hidden_state[:, :8] - alone).square().mean().sqrt().item()


# --- tokens against scores ---


def hidden_token() -> Table:
    """What a layer still knows of a token at its own place and elsewhere, when its scores or the token are masked."""
    torch.manual_seed(0)
    encoder = VanillaTransformerEncoder(VanillaTransformerConfig.from_preset("tiny", **SIZES)).eval()
    ids, hidden = torch.arange(4, 12)[None], 3
    visible = torch.ones_like(ids)
    visible[0, hidden] = 0
    replaced = ids.clone()
    replaced[0, hidden] = START  # any token that says nothing of the hidden one: BERT's is [MASK]
    changed = ids.clone()
    changed[0, hidden] = 20  # what must not be seen
    rows = {}
    with torch.no_grad():
        for name, pair, mask in (
            ("nothing is masked", (ids, changed), None),
            ("scores of the token are masked", (ids, changed), visible),
            ("token is replaced", (replaced, replaced), None),
        ):
            first, second = (encoder(each, mask).last_hidden_state[0] for each in pair)
            change = (first - second).norm(dim=-1)
            elsewhere = torch.cat([change[:hidden], change[hidden + 1 :]]).max()
            rows[name] = {"at its own place": change[hidden].item(), "elsewhere": elsewhere.item()}
    return Table(
        "how much the output tells of a hidden token: change when it is another one, one encoder layer",
        {"at its own place": "{:.3f}", "elsewhere": "{:.3f}"},
        rows,
    )


# --- picture ---


def draw(maps: dict[str, torch.Tensor], losses: dict[str, list[float]], moved: dict[str, dict[str, float]]) -> Picture:
    ticks = (
        [f"$y_{place}$" if place else "<s>" for place in range(LENGTH)],
        [f"$y_{place + 1}$" for place in range(LENGTH)],
    )
    heat = [
        HeatMap(name, "decoder input", "predicted token", values.numpy(), "share of the influence", ticks=ticks)
        for name, values in maps.items()
    ]
    updates = range(1, 1 + len(losses[CAUSAL]))
    loss = Curves("learning to copy", "update", "training loss, nats", updates, losses, markers=False)
    curves = {name: [row[name] for row in moved.values()] for name in (MASKED, UNMASKED)}
    padding = Curves("padding", "padding tokens", "change of the encoding", [int(name) for name in moved], curves)
    return Picture("What leaks without masks", [heat, [loss, padding]])
