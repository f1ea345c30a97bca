"""Measuring a model: exact loss per token, translations, and their scores.

Every BLEU in this project comes from `translate_texts` and `score_texts`: the one during training, the one at the end
of a run, and that of `vanilla evaluate`. `compute_metrics` gives the same scores to the library's stock trainer.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import chain
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer import Translator
from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.models.label_smoothing import IGNORED_LABEL
from vanilla_transformer.safe_files.atomic_writes import one_line
from vanilla_transformer.training.data.corpus_mixing import DIRECTION
from vanilla_transformer.training.data.token_batches import TokenBatchSampler, column_lengths
from vanilla_transformer.training.evaluation.metrics import Reference, measure
from vanilla_transformer.training.objectives.cross_entropy import takes_criterion


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
    # Without all logits at once: evaluation must not need more memory than training.
    options = {"skip_logits": True} if takes_criterion(model) else {}
    means, counts = [], []
    for batch in batches:
        counts.append(int((batch["labels"] != IGNORED_LABEL).sum()))  # on the CPU
        on_device = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        means.append(model(**on_device, **options).loss)
    numbers = torch.tensor(counts, dtype=torch.float64)
    # The host waits for the device only here.
    sums = torch.stack(means).cpu().double() * numbers if means else numbers
    total = torch.stack([sums.sum(), numbers.sum()])
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
    """Returns the score and signature of each measure.

    Args:
        translations: The translations.
        references: The reference of each translation, or several.
        options: Options of `metrics.measures`; `names` chooses the measures.
    """
    return {name: figure._asdict() for name, figure in measure(translations, references, **options).items()}


# sacreBLEU's own tokenisation of languages that its default, 13a, can't split into words, and the module it needs.
SACREBLEU_TOKENS = {"zh": ("zh", None), "ja": ("ja-mecab", "MeCab"), "ko": ("ko-mecab", "mecab_ko")}


def sacrebleu_tokens(language: str | None, given: str = "auto") -> str:
    """Returns sacreBLEU's tokenisation for a target language, which its signature names, unless another is given."""
    code = re.split("[-_]", language or "")[0].lower()
    name = SACREBLEU_TOKENS.get(code, ("13a", None))[0] if given == "auto" else given
    for code, (needing, module) in SACREBLEU_TOKENS.items():
        if name == needing and module is not None and find_spec(module) is None:
            raise ValueError(f"BLEU with {name} needs words that MeCab finds: pip install 'sacrebleu[{code}]'.")
    return name


def options_for(language: str | None) -> dict[str, str]:
    """Returns the options of `metrics.measures` that follow from a target language."""
    return {"target_lang": language or "en", "sacrebleu_tokens": sacrebleu_tokens(language)}


def score_dataset(
    translations: Sequence[str],
    references: Sequence[Reference],
    dataset: Dataset,
    target_lang: str | None,
    names: Sequence[str] = ("sacrebleu",),
) -> dict[str, Any]:
    """Returns the figures of the translations of a data set: by direction and as their mean, if it has several.

    Args:
        translations: The translations.
        references: The reference of each translation, or several.
        dataset: Its pairs, with a column `direction` if there are several.
        target_lang: The target language if there is one direction.
        names: The measures.
    """
    rows_of_direction = rows_by_direction(dataset)
    if not rows_of_direction:
        return score_texts(translations, references, names=names, **options_for(target_lang))
    figures = {
        direction: score_texts(
            [translations[row] for row in rows],
            [references[row] for row in rows],
            names=names,
            **options_for(Languages.parse(direction).target),
        )
        for direction, rows in rows_of_direction.items()
    }
    return {**mean_figures(figures), "directions": figures}


def rows_by_direction(dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the rows of each direction of a data set with several."""
    if DIRECTION not in dataset.column_names:
        return {}
    of_row = dataset.with_format("numpy")[DIRECTION][:]
    rows = {name: np.flatnonzero(of_row == number) for number, name in enumerate(dataset.features[DIRECTION].names)}
    return {name: of_direction for name, of_direction in rows.items() if len(of_direction)}


def mean_figures(figures: dict[str, dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Returns the mean of each measure over directions, with a signature that says so."""
    means = {}
    for name in dict.fromkeys(chain.from_iterable(figures.values())):
        of_measure = [by_name[name] for by_name in figures.values() if name in by_name]
        signatures = dict.fromkeys(figure["signature"] for figure in of_measure)
        means[name] = {
            "score": sum(figure["score"] for figure in of_measure) / len(of_measure),
            "signature": f"mean of {len(of_measure)} directions: {', '.join(signatures)}",
        }
    return means


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
