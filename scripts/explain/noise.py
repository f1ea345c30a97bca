"""Noise on the decoder's input in training: what wrong tokens before it do to the next one."""

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.models.label_smoothing import IGNORED_LABEL
from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture
from vanilla_transformer.scripts.explain.trainings import PAPER, train_one
from vanilla_transformer.training.data.decoder_input_noise import PrefixNoise
from vanilla_transformer.training.data.demo_corpus import demo_corpus


NOISE = ["--prefix_replace", "0.15"]
CLEAN = "trained without noise"
NOISY = "trained with 15% noise"


def explain(options: ExplainArguments) -> Explanation:
    """Perplexity where the decoder reads wrong tokens, for models trained with and without such noise. *"""
    runs = {
        CLEAN: train_one("paper", PAPER, options),
        NOISY: train_one("prefix_noise", PAPER, options, NOISE),
    }
    shares = options.choose([0.0, 0.15, 0.3, 0.5], quick=[0.0, 0.5])
    pairs = demo_corpus("test", options.choose(500, quick=20))
    found = {name: perplexities(folder / "model", pairs, shares) for name, folder in runs.items()}
    rows = {f"{share:.0%}": {name: values[share] for name, values in found.items()} for share in shares}
    table = Table(
        "perplexity of references, by the share of random tokens among those that the decoder reads",
        dict.fromkeys(runs, "{:.1f}"),
        rows,
        notes=[f"{options.updates} updates, one seed; {len(pairs)} test sentences."],
    )
    panel = Curves(
        "references of the test set",
        "random tokens in the decoder's input, %",
        "perplexity",
        [round(100 * share) for share in shares],
        {name: [row[name] for row in rows.values()] for name in runs},
    )
    return Explanation(
        [table], [Picture("Wrong tokens before the next one, with and without noise in training", [[panel]])]
    )


@torch.no_grad()
def perplexities(folder: Path, pairs: list[dict[str, str]], shares: list[float]) -> dict[float, float]:
    """Perplexity of the references, by the share of random tokens in the decoder's input."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sources = tokenizer([pair["en"] for pair in pairs], padding=True, return_tensors="pt")
    labels = tokenizer([pair["de"] for pair in pairs], padding=True, return_tensors="pt").input_ids
    labels = labels.masked_fill(labels == tokenizer.pad_token_id, IGNORED_LABEL)
    found = {}
    for share in shares:
        noise = PrefixNoise.for_tokenizer(tokenizer, model.config.decoder_start_token_id, replace=share)
        read = noise(labels, torch.Generator().manual_seed(0))
        logits = model(sources.input_ids, attention_mask=sources.attention_mask, decoder_input_ids=read).logits
        found[share] = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED_LABEL).exp().item()
    return found
