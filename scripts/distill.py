"""Make a distilled corpus: a teacher translates the sources of the training pairs, and a student learns from that.

Sequence-level distillation (Kim and Rush 2016): the teacher's translations replace the targets. They are more regular
than human ones, so a small or shallow student learns them better. The teacher is one model or an ensemble:

    vanilla-distill --model runs/seed1/model runs/seed2/model --train_files data/train --output_dir data/distilled

The pairs are in data/distilled/train.en and data/distilled/train.de, beside report.json. To train the student:

    vanilla-train RECIPE --dataset "" --train_files data/distilled/train --validation_files data/val

--n_best 5 writes five pairs for each source. With --closest only one of the five is written: the one with the highest
sentence BLEU against the original target. The corpus may also be a dataset, with the options of vanilla-train.

A run that was killed continues where it was when it is started again. The result is the same, byte for byte.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import batched
from pathlib import Path
from typing import Any

import sacrebleu
from datasets import Dataset, IterableDataset

from vanilla_transformer import Translator
from vanilla_transformer.atomic_writes import one_line, require_room, whole_folder, write_json
from vanilla_transformer.training.arguments import (
    CorpusArguments,
    DecodingArguments,
    LoadingArguments,
    errors_as_sentences,
    key,
    parse_arguments,
)
from vanilla_transformer.training.cleaning import CleaningReport, kept_pairs
from vanilla_transformer.training.corpus import load_corpus
from vanilla_transformer.training.evaluation import score_texts
from vanilla_transformer.training.synthetic_corpus import (
    REPORT,
    TRAIN,
    PairCounts,
    TranslatedParts,
    digest_of_models,
    number_and_digest,
    readable_report,
    write_pairs,
)
