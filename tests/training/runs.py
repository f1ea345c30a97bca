"""Small runs for the tests of training: a corpus, and readers for what a run writes."""

import json
import random
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM


def write_reversals(folder: Path, number: int = 400, seed: int = 0) -> str:
    """Writes a corpus whose targets are the sources backwards, and returns its prefix."""
    draw = random.Random(seed)
    sources = [[draw.choice("abcdefgh") for _ in range(draw.randint(2, 7))] for _ in range(number)]
    (folder / f"pairs{seed}.en").write_text("".join(" ".join(words) + "\n" for words in sources))
    (folder / f"pairs{seed}.de").write_text("".join(" ".join(reversed(words)) + "\n" for words in sources))
    return str(folder / f"pairs{seed}")


def reversal_data(number: int) -> list[dict[str, list[int]]]:
    """Returns the same task as token ids 4 to 11, each side ending in 2."""
    draw = random.Random(0)
    sources = [[draw.randint(4, 11) for _ in range(draw.randint(3, 8))] for _ in range(number)]
    return [{"input_ids": [*ids, 2], "labels": [*reversed(ids), 2]} for ids in sources]


def losses(folder: Path) -> list[float]:
    """Returns the training losses in a run's metrics.jsonl."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def final_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Returns the weights of a run's final model without the biases of the keys.

    Adding one vector to every key changes no attention weight. So the gradient of these biases is rounding noise,
    which Adam scales up to full steps.
    """
    state = AutoModelForSeq2SeqLM.from_pretrained(folder / "model").state_dict()
    return {name: tensor for name, tensor in state.items() if not name.endswith("k_proj.bias")}
