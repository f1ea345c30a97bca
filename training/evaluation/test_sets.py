"""Measuring a model: exact loss per token, translations, and their scores.

Every BLEU in this project comes from `translate_texts` and `score_texts`: the one during training, the one at the end
of a run, and that of `vanilla evaluate`. `compute_metrics` gives the same scores to the library's stock trainer.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer import Translator
from vanilla_transformer.models.label_smoothing import IGNORED_LABEL
from vanilla_transformer.safe_files.atomic_writes import one_line
from vanilla_transformer.training.data.token_batches import TokenBatchSampler, column_lengths
from vanilla_transformer.training.evaluation.hf_evaluate_metric import BleuMetric
from vanilla_transformer.training.evaluation.metrics import Reference


# --- loss ---


def batches_by_length(dataset: Dataset, max_tokens: int, rank: int = 0, world_size: int = 1) -> Iterator[list[int]]:
    """Yields this process's share of the token batches of a data set. No pair is left out, however long."""
    source, target = column_lengths(dataset, "input_ids"), column_lengths(dataset, "labels")
    limit = max(max_tokens, int(source.max()), int(target.max()))
    for number, batch in enumerate(TokenBatchSampler(source, target, max_tokens=limit)):
        if number % world_size == rank:
            yield batch


@torch.no_grad()
def sum_of_losses(
    model: PreTrainedModel, batches: Iterable[dict[str, torch.Tensor]], device: torch.device
) -> torch.Tensor:
    """Returns [sum of -log p over all target tokens, number of tokens], so that the mean does not depend on batches.

    The loss is the model's own: plain cross-entropy, whatever the training objective.
    """
    total = torch.zeros(2, dtype=torch.float64)
    for batch in batches:
        count = (batch["labels"] != IGNORED_LABEL).sum().item()
        mean = model(**{name: tensor.to(device) for name, tensor in batch.items()}).loss
        total += torch.tensor([mean.item() * count, count], dtype=torch.float64)
    return total.float().to(device) if device.type == "mps" else total.to(device)  # MPS has no float64


def perplexity(loss: float) -> float:
    """Returns the perplexity of a loss per token."""
    return math.exp(min(loss, 100.0))


# --- translations and their scores ---


def translate_texts(
    translator: Translator,
    sources: Sequence[str],
    *,
    rank: int = 0,
    world_size: int = 1,
    progress: bool = False,
    **decoding: Any,
) -> list[str]:
    """Returns the best translation of each source, on one line each.

    Collective if `world_size` is more than 1: each process translates its share, and every process gets all results.

    Args:
        translator: The translator; it has the model, its search and its default decoding options.
        sources: The texts.
        rank: Number of this process.
        world_size: Number of processes.
        progress: Whether to show a progress bar.
        decoding: Options of `Translator.translate`, such as `num_beams`.
    """
    share = range(rank, len(sources), world_size)
    texts = translator([sources[index] for index in share], progress=progress, **decoding)
    translations = [one_line(text) for text in texts]
    if world_size == 1:
        return translations
    return [text for _, text in sorted(gather_object(list(zip(share, translations, strict=True))))]


def score_texts(
    translations: Sequence[str], references: Sequence[Reference], **options: Any
) -> dict[str, dict[str, Any]]:
    """Returns the score and signature of each measure, from the metric in `bleu_metric.py`.

    Args:
        translations: The translations.
        references: The reference of each translation, or several.
        options: Options of `metrics.measures`; `names` chooses the measures.
    """
    metric = BleuMetric(keep_in_memory=True)
    return metric.compute(predictions=list(translations), references=list(references), **options)


def compute_metrics(
    tokenizer: PreTrainedTokenizerBase, names: Sequence[str] = ("sacrebleu",), **options: Any
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Returns a `compute_metrics` for the library's `Seq2SeqTrainer` with `predict_with_generate=True`.

        Seq2SeqTrainer(..., compute_metrics=compute_metrics(tokenizer))

    Args:
        tokenizer: The tokenizer of the target language.
        names: The measures to compute, which become the keys of the result.
        options: Other options of `metrics.measures`.
    """

    def decode(ids: np.ndarray) -> list[str]:
        padded = np.where(ids == IGNORED_LABEL, tokenizer.pad_token_id, ids)
        return [one_line(text) for text in tokenizer.batch_decode(padded, skip_special_tokens=True)]

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        translations, references = decode(prediction.predictions), decode(prediction.label_ids)
        scores = score_texts(translations, references, names=names, **options)
        return {name: figure["score"] for name, figure in scores.items()}

    return compute
