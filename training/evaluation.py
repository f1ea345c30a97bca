"""Quality while training: exact loss per token, and the translations to measure BLEU on (see `evaluation.py`)."""

import math
from collections.abc import Iterator, Sequence

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer import beam_search
from vanilla_transformer.decoding_options import search_options
from vanilla_transformer.training.batching import TokenBatchSampler, column_lengths
from vanilla_transformer.translation import longest_sequence


def batches_by_length(dataset: Dataset, max_tokens: int, rank: int = 0, world_size: int = 1) -> Iterator[list[int]]:
    """This process's share of all token batches; every pair is in one of them, however long."""
    source, target = column_lengths(dataset, "input_ids"), column_lengths(dataset, "labels")
    limit = max(max_tokens, int(source.max()), int(target.max()))
    for number, batch in enumerate(TokenBatchSampler(source, target, max_tokens=limit)):
        if number % world_size == rank:
            yield batch


@torch.no_grad()
def sum_of_losses(model: PreTrainedModel, batches, device: torch.device) -> torch.Tensor:
    """[the sum of -log p over all target tokens, their number], for a mean that no batching can bend."""
    total = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        count = (batch["labels"] != -100).sum().item()
        mean = model(**{name: tensor.to(device) for name, tensor in batch.items()}).loss
        total += torch.tensor([mean.item() * count, count], dtype=torch.float64)
    return total.float().to(device) if device.type == "mps" else total.to(device)  # which has no float64


def perplexity(loss: float) -> float:
    return math.exp(min(loss, 100.0))


@torch.no_grad()
def translate_ids(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: Sequence[list[int]], **generation
) -> list[list[int]]:
    """One translation for each source of ids, by the paper's search (section 6.1) with the model's own settings."""
    batch = tokenizer.pad({"input_ids": list(sources)}, return_tensors="pt").to(model.device)
    room = batch["input_ids"].shape[1] + 51  # the start token included
    limit = longest_sequence(model)
    generation.setdefault("max_length", room if limit is None else min(room, limit))
    options = search_options(model.generation_config, **generation)
    output = model.generate(**batch, custom_generate=beam_search.search, use_cache=True, **options)
    return output.tolist()
