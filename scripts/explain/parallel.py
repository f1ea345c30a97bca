"""Where the Transformer runs in parallel: one pass against one token after the other."""

from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from transformers.modeling_outputs import BaseModelOutput

from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
from vanilla_transformer.scripts.benchmarks.measuring import cpu_seconds_of, take_turns
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture


ONE_PASS, CACHED, UNCACHED = "one pass", "step by step, cache", "step by step, no cache"
Model = VanillaTransformerForConditionalGeneration
Decode = Callable[[torch.Tensor], torch.Tensor]


def explain(options: ExplainArguments) -> Explanation:
    """One pass over all tokens against one token after the other: same logits, other time."""
    lengths = options.choose([8, 16, 32, 64], quick=[4, 8])
    model = Model(VanillaTransformerConfig.from_preset("tiny", vocab_size=2000))
    ways = {ONE_PASS: one_pass, CACHED: step_by_step, UNCACHED: step_by_step_without_cache}
    with torch.no_grad():  # the source is encoded once, in parallel too
        source = model.eval().get_encoder()(torch.randint(4, model.config.vocab_size, (1, max(lengths))))
    decoders: dict[str, Decode] = {name: partial(way, model, source) for name, way in ways.items()}
    rows = {f"{length}": compare(decoders, length, options.rounds) for length in lengths}
    formats = {f"{name}, ms": "{:,.1f}" for name in ways} | {"largest difference of logits": "{:.0e}"}
    table = Table(
        "decoding a given target of n tokens: CPU ms of the decoder, tiny model",
        formats,
        rows,
        notes=["The first column is n. Training knows the target and needs one pass; translating does not."],
    )
    curves = {name: [row[f"{name}, ms"] for row in rows.values()] for name in ways}
    steps = {"training": [1] * len(lengths), "translating": lengths}
    panels = [
        Curves("time of the decoder", "target tokens, n", "CPU ms", lengths, curves, log="xy"),
        Curves("passes that wait for each other", "target tokens, n", "passes", lengths, steps, log="xy"),
    ]
    return Explanation([table], [Picture("Training is parallel over the target, translating is not", [panels])])


@torch.no_grad()
def one_pass(
    model: VanillaTransformerForConditionalGeneration, source: BaseModelOutput, target: torch.Tensor
) -> torch.Tensor:
    """Logits [1, n, V] of all tokens at once, as in training: the causal mask hides later tokens."""
    return model(encoder_outputs=source, decoder_input_ids=target, use_cache=False).logits


@torch.no_grad()
def step_by_step(model: Model, source: BaseModelOutput, target: torch.Tensor) -> torch.Tensor:
    """The same logits, one token after the other with cached keys and values, as in translating."""
    cache, logits = None, []
    for token in target.split(1, dim=1):
        output = model(encoder_outputs=source, decoder_input_ids=token, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        logits.append(output.logits)
    return torch.cat(logits, dim=1)


@torch.no_grad()
def step_by_step_without_cache(model: Model, source: BaseModelOutput, target: torch.Tensor) -> torch.Tensor:
    """The same logits, with the whole prefix computed again for each token."""
    steps = [one_pass(model, source, target[:, : end + 1])[:, -1:] for end in range(target.shape[1])]
    return torch.cat(steps, dim=1)


def compare(decoders: dict[str, Decode], length: int, rounds: int) -> dict[str, float]:
    """CPU milliseconds of each way for a random target, and how far their logits are apart."""
    target = torch.randint(4, 2000, (1, length))
    logits = {name: decode(target) for name, decode in decoders.items()}  # also warms up
    seconds = take_turns(
        {name: partial(cpu_seconds_of, partial(decode, target)) for name, decode in decoders.items()}, rounds
    )
    apart = max((values - logits[ONE_PASS]).abs().max().item() for values in logits.values())
    return {f"{name}, ms": 1000 * median(times) for name, times in seconds.items()} | {
        "largest difference of logits": apart
    }
