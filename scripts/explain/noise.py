"""Noise on the decoder's input in training: what a wrong prefix does to the rest of a translation."""

from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.scripts.benchmarks.report import Table
from vanilla_transformer.scripts.explain.explanation import ExplainArguments, Explanation
from vanilla_transformer.scripts.explain.panels import Curves, Picture
from vanilla_transformer.scripts.explain.trainings import PAPER, train_one
from vanilla_transformer.training.data.decoder_input_noise import PrefixNoise
from vanilla_transformer.training.data.demo_corpus import demo_corpus
from vanilla_transformer.training.evaluation.metrics import bleu


NOISE = ["--prefix_replace", "0.15"]
PREFIX = 6  # tokens of the translation that are given
CLEAN = "trained without noise"
NOISY = "trained with 15% noise"


def explain(options: ExplainArguments) -> Explanation:
    """BLEU after a corrupted prefix, for models trained with and without prefix noise. *"""
    runs = {
        CLEAN: train_one("paper", PAPER, options),
        NOISY: train_one("prefix_noise", PAPER, options, NOISE),
    }
    shares = options.choose([0.0, 0.15, 0.3, 0.5], quick=[0.0, 0.5])
    pairs = demo_corpus("test", options.choose(150, quick=20))
    found = {name: bleu_after_prefixes(folder / "model", pairs, shares) for name, folder in runs.items()}
    rows = {f"{share:.0%}": {name: scores[share] for name, scores in found.items()} for share in shares}
    table = Table(
        f"BLEU of the rest of a translation after {PREFIX} given tokens, by the share of random ones among these",
        dict.fromkeys(runs, "{:.1f}"),
        rows,
        notes=[f"{options.updates} updates, one seed; greedy search; the given tokens are not scored."],
    )
    panel = Curves(
        f"after {PREFIX} given tokens",
        "random tokens among them, %",
        "BLEU of the rest",
        [round(100 * share) for share in shares],
        {name: [row[name] for row in rows.values()] for name in runs},
    )
    return Explanation([table], [Picture("A wrong prefix, with and without noise in training", [[panel]])])


@torch.no_grad()
def bleu_after_prefixes(folder: Path, pairs: list[dict[str, str]], shares: list[float]) -> dict[float, float]:
    """BLEU of what a model writes after a reference prefix in which a share of the tokens is random."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    targets = tokenizer([pair["de"] for pair in pairs]).input_ids
    chosen = [number for number, ids in enumerate(targets) if len(ids) > PREFIX + 2]  # some words are left to write
    sources = tokenizer([pairs[number]["en"] for number in chosen], return_tensors="pt", padding=True)
    # One more token: the start token takes the first place when the labels are shifted right.
    labels = torch.tensor([targets[number][: PREFIX + 1] for number in chosen])
    references = tokenizer.batch_decode([targets[number][PREFIX:] for number in chosen], skip_special_tokens=True)
    scores = {}
    for share in shares:
        noise = PrefixNoise.for_tokenizer(tokenizer, model.config.decoder_start_token_id, replace=share)
        prefix = noise(labels, torch.Generator().manual_seed(0))
        output = model.generate(
            **{name: sources[name] for name in ("input_ids", "attention_mask")},
            decoder_input_ids=prefix,
            do_sample=False,
            num_beams=1,
            max_new_tokens=30,
        )
        rest = tokenizer.batch_decode(output[:, prefix.shape[1] :], skip_special_tokens=True)
        scores[share] = bleu(rest, references).score
    return scores
