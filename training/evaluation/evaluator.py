"""`Evaluator`: loss, translations and scores of a model, by all processes of a training together."""

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer import Translator
from vanilla_transformer.hub.languages import languages_of
from vanilla_transformer.models.label_smoothing import IGNORED_LABEL
from vanilla_transformer.safe_files.atomic_writes import write_lines
from vanilla_transformer.safe_files.standard_streams import on_terminal
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.evaluation.metrics import Reference
from vanilla_transformer.training.evaluation.test_sets import (
    batches_by_length,
    perplexity,
    rows_by_direction,
    score_dataset,
    sum_of_losses,
    translate_texts,
)
from vanilla_transformer.training.run_folder.checkpoints import not_a_number


class Evaluator:
    """Measures models. Its methods are collective: every process must call them, and the processes share the work.

    Args:
        args: The training arguments.
        accelerator: The accelerator of the training.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target tokenizer, which may be the same.
        collator: Makes a batch of pairs.
    """

    def __init__(
        self,
        args: TranslationTrainingArguments,
        accelerator: Accelerator,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase,
        collator: Callable[[list[dict[str, Any]]], Any],
    ):
        self.args, self.accelerator, self.collator = args, accelerator, collator
        self.tokenizer, self.target_tokenizer = tokenizer, target_tokenizer

    def measure(
        self,
        model: PreTrainedModel,
        dataset: Dataset,
        measures: Sequence[str] = (),
        references: Sequence[Reference] | None = None,
        **decoding: Any,
    ) -> tuple[dict[str, Any], list[str]]:
        """Returns the loss, the given measures of translations, and these, if there are measures."""
        model.eval()
        total, tokens = self.accelerator.reduce(self._sum_of_losses(model, dataset)).tolist()
        loss = total / tokens
        if not math.isfinite(loss):
            raise not_a_number(self.args.output_dir)
        measured: dict[str, Any] = {"loss": loss, "perplexity": perplexity(loss)}
        if not measures:
            return measured, []
        translations = self.translate(model, dataset["source"][:], **decoding)
        references = dataset["target"][:] if references is None else references
        figures = score_dataset(translations, references, dataset, languages_of(model.config).target, measures)
        return {**measured, **figures}, translations

    def _sum_of_losses(self, model: PreTrainedModel, dataset: Dataset) -> torch.Tensor:
        tokens = dataset.select_columns(["input_ids", "labels"])
        share = batches_by_length(tokens, self.args.max_tokens, self.args.process_index, self.args.world_size)
        batches = (self.collator([tokens[index] for index in indices]) for indices in share)
        return sum_of_losses(model, batches, self.args.device)

    def translate(self, model: PreTrainedModel, sources: Sequence[str], **decoding: Any) -> list[str]:
        """Translates texts with the model's search and decoding options."""
        translator = Translator(model, self.tokenizer, self.target_tokenizer, max_tokens=self.args.max_tokens)
        processes = {"rank": self.args.process_index, "world_size": self.args.world_size}
        # A long validation is not silent. In several processes, one of them shows its share.
        progress = self.args.process_index == 0 and on_terminal(sys.stderr)
        # The searches do not call the model's `forward`, which has the precision of the training. On a CPU, they are
        # fastest in float32.
        with nullcontext() if self.args.device.type == "cpu" else self.accelerator.autocast():
            return translate_texts(translator, sources, progress=progress, **processes, **decoding)

    def bleu(self, model: PreTrainedModel, dataset: Dataset) -> float:
        """Returns the sacreBLEU of pairs with their text, with the model's decoding options: the mean of several
        directions."""
        translations = self.translate(model.eval(), dataset["source"][:])
        figures = score_dataset(translations, dataset["target"][:], dataset, languages_of(model.config).target)
        return figures["sacrebleu"]["score"]

    def score(
        self,
        model: PreTrainedModel,
        dataset: Dataset,
        hypotheses: Path,
        references: Sequence[Reference] | None = None,
    ) -> dict[str, Any]:
        """Returns loss, perplexity and sacreBLEU with the model's decoding options, and writes the translations.

        Args:
            model: The model.
            dataset: Tokenised pairs with their text.
            hypotheses: The file for the translations, one on each line. Each of several directions has its own, with
                its name in front of the last two suffixes: `test.en-de.hypotheses.txt`.
            references: The references; the target side by default.
        """
        names = dict.fromkeys(("sacrebleu", *self.args.test_measures))
        measured, translations = self.measure(model, dataset, tuple(names), references)
        if self.args.should_save:
            lines = [" ".join(line.split()) for line in translations]
            stem, rest = hypotheses.name.split(".", 1)
            by_direction = rows_by_direction(dataset)
            for direction, rows in by_direction.items():
                write_lines(hypotheses.with_name(f"{stem}.{direction}.{rest}"), [lines[row] for row in rows])
            if not by_direction:
                write_lines(hypotheses, lines)
        return measured

    def prediction(self, translations: Sequence[str], dataset: Dataset) -> EvalPrediction:
        """Returns the token ids of translations and references, as transformers gives them to `compute_metrics`."""
        ids = self.target_tokenizer(text_target=list(translations))["input_ids"]
        return EvalPrediction(predictions=_as_array(ids), label_ids=_as_array(dataset["labels"][:]))


def _as_array(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Rows of different lengths as one array, padded as labels are."""
    array = np.full((len(rows), max(map(len, rows))), IGNORED_LABEL)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array
