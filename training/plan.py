"""What a recipe will cost, in seconds, without a GPU and without reading the text.

    vanilla plan wmt14_en_de_base --processes 8
    vanilla plan wmt14_en_de_big --processes 8 --tflops 312 --utilisation 0.35

It checks the recipe (text, columns, languages, batches, packages) and prints its parameters, FLOPs, memory and disk.
With the peak TFLOPS of one GPU (its data sheet has them for each precision) and the share of it that training reaches,
it prints hours. Small and middle-sized models reach 0.2 to 0.4.

FLOPs and memory are counted on tensors without numbers. Beyond what is counted, the framework keeps about 1 GB on each
GPU for itself, and its allocator some of what is free.
"""

import sys
from dataclasses import dataclass
from typing import Any

import torch
from datasets import load_dataset_builder
from datasets.exceptions import DatasetNotFoundError
from transformers import PreTrainedConfig

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.loading import load_config
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.run_arguments import with_languages
from vanilla_transformer.training.arguments.training_arguments import (
    DescribedTrainingArguments,
    batches_of_each_process,
)
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.build_model import config_of_new_model
from vanilla_transformer.training.data.corpus_files import choose_columns, column_names, pairs_in_files
from vanilla_transformer.training.data.corpus_languages import directions_of_corpus, languages_of_corpus, of_direction
from vanilla_transformer.training.data.parallel_corpus import SPLITS
from vanilla_transformer.training.reports.device_costs import costs_of_update, shape_of_batch, shape_of_model
from vanilla_transformer.training.reports.tables import aligned


@dataclass
class PlanArguments:
    """Where the recipe will run."""

    processes: int = key(1, "Processes that train together, one for each GPU.")
    sentence_tokens: int = key(30, "Mean tokens of a sentence on each side; longer ones cost more attention.")
    tflops: float | None = key(None, "Peak TFLOPS of one GPU in the recipe's precision, from its data sheet.")
    utilisation: float = key(0.3, "Share of these that training reaches.")

    def __post_init__(self) -> None:
        for name in ("processes", "sentence_tokens", "tflops", "utilisation"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} must be above 0.")
        for name, most in (("processes", 1_000_000), ("sentence_tokens", 10_000)):
            if getattr(self, name) > most:
                raise ValueError(f"{name}={getattr(self, name)} must be at most {most:,}.")


TYPES = [PlanArguments, ModelArguments, CorpusArguments, VocabularyArguments, DescribedTrainingArguments]


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        print(aligned(list(plan(*parse_arguments(TYPES, __doc__, argv)).items())))


def plan(
    where: PlanArguments,
    model_arguments: ModelArguments,
    corpus_arguments: CorpusArguments,
    vocabulary_arguments: VocabularyArguments,
    args: DescribedTrainingArguments,
) -> dict[str, str]:
    """Checks a recipe and returns what it costs, by name."""
    text = check_text(with_languages(corpus_arguments, model_arguments))
    config = planned_config(model_arguments, vocabulary_arguments)
    tokens = args.tokens_per_update or args.max_tokens * args.gradient_accumulation_steps * where.processes
    each = batches_of_each_process(tokens, args.max_tokens, where.processes)
    batches = each * where.processes
    shape = (max(args.max_tokens // where.sentence_tokens, 1), where.sentence_tokens, where.sentence_tokens)
    dtype = getattr(torch, args.planned_precision)
    in_training = costs_of_update(shape_of_model(config), shape_of_batch(*shape), dtype=dtype)
    in_evaluation = costs_of_update(shape_of_model(config), shape_of_batch(*shape), dtype=dtype, training=False)
    parameters = shape_of_model(config).num_parameters()
    # Processes exchange gradients through buckets of the same size.
    buckets = 4 * parameters if where.processes > 1 else 0
    flops = batches * in_training.flops
    formula = flops_by_formula(config, *shape)
    checkpoint = 12 * parameters  # weights and Adam's two moments, in float32
    kept = (args.save_total_limit or 0) + 1
    rows = {
        "text": text,
        "update": f"{batches} batches of at most {args.max_tokens:,} + {args.max_tokens:,} tokens: {each} for each of "
        f"{where.processes} process(es)",
        "parameters": f"{parameters:,}",
        "FLOPs of an update": f"{flops:.3g}" + (f" (by formula {batches * formula:.3g})" if formula else ""),
        "memory of a process": f"{_size(in_training.peak_memory + buckets)} in training, "
        f"{_size(in_evaluation.peak_memory)} in evaluation ({args.planned_precision})",
        "disk": f"{_size(checkpoint)} for a checkpoint, {_size((kept + 1) * checkpoint)} while one is written"
        if args.save_total_limit
        else f"{_size(checkpoint)} for each checkpoint; save_total_limit bounds their number",
    }
    if args.max_steps > 0:
        rows["FLOPs of the run"] = f"{flops * args.max_steps:.3g} in {args.max_steps:,} updates"
    if where.tflops is None:
        rows["time"] = "give --tflops and --utilisation for hours"
    elif args.max_steps > 0:
        speed = where.processes * where.tflops * 1e12 * where.utilisation
        rows["time"] = (
            f"{flops * args.max_steps / speed / 3600:.1f} hours at {where.utilisation:.0%} of {where.tflops:g} "
            f"TFLOPS, {flops / speed:.3f} s for an update; evaluation and start not included"
        )
    return rows


def planned_config(model_arguments: ModelArguments, vocabulary_arguments: VocabularyArguments) -> PreTrainedConfig:
    """Returns the config of the recipe's model, with the size that its vocabulary will have."""
    if model_arguments.model_name_or_path:
        return load_config(model_arguments.model_name_or_path)
    if given := model_arguments.tokenizer or model_arguments.initialize_from:
        raise ValueError(f"The vocabulary of {given!r} is not read here: set vocab_size and leave it out.")
    size = vocabulary_arguments.vocab_size
    fields: dict[str, Any] = {"vocab_size": size}
    if vocabulary_arguments.separate:
        fields["target_vocab_size"] = size
    return config_of_new_model(model_arguments, fields)


# --- the text ---


def check_text(arguments: CorpusArguments) -> str:
    """Checks that the text is there, with its languages, and returns a description of it."""
    directions = directions_of_corpus(arguments)
    names, several = " ".join(map(str, directions)), len(directions) > 1
    if arguments.dataset == "demo":
        return f"the demo corpus, {names}"
    if arguments.dataset:
        checked = [_check_dataset(of_direction(arguments, each), several) for each in directions]
        return f"{arguments.dataset}, {names}: {checked[0]}"
    for direction in directions:
        for split in SPLITS:
            for file in of_direction(arguments, direction).files(split):
                source, target = map(str, direction)
                pairs = pairs_in_files([file], source, target, arguments.columns, several=several)
                if next(pairs, None) is None:
                    raise ValueError(f"{file} has no pair of sentences: check {split}_files.")
    return f"{', '.join(arguments.train_files)}, {names}: the first pair of every file was read"


def _check_dataset(arguments: CorpusArguments, several: bool) -> str:
    options = {"revision": arguments.dataset_revision} if arguments.dataset_revision else {}
    try:
        info = load_dataset_builder(arguments.dataset, arguments.dataset_config, **options).info
    except (DatasetNotFoundError, ConnectionError, OSError) as error:
        return f"not checked, because it can't be reached ({str(error).splitlines()[0]})"
    features = info.features or {}
    if features:
        nested = features.get("translation")
        names = getattr(nested, "languages", None) or list(nested or features)
        languages = languages_of_corpus(arguments)
        choose_columns(names, column_names(*languages, several), f"The dataset {arguments.dataset!r}")
    for split in SPLITS:
        name = getattr(arguments, f"{split}_split").split("[")[0].split("+")[0]
        if info.splits and name not in info.splits:
            raise ValueError(
                f"{split}_split={name!r} is not among the splits of {arguments.dataset!r}: {list(info.splits)}."
            )
    pairs = info.splits[arguments.train_split.split("[")[0]].num_examples if info.splits else None
    return f"{pairs:,} training pairs by its description" if pairs else "found; its description has no sizes"


# --- FLOPs by hand ---


def flops_by_formula(config: PreTrainedConfig, rows: int, source: int, target: int) -> float | None:
    """Returns the FLOPs of an update of the paper's model by formula: a check of what is counted.

    A multiplication with a matrix takes two operations for each weight and token, and its backward pass twice as many.

    Args:
        config: The model's config.
        rows: Sentence pairs in the batch.
        source: Tokens of each source.
        target: Tokens of each target.
    """
    if config.model_type != "vanilla_transformer":
        return None
    d = config.d_model
    attention = {}
    for stack, heads in (("encoder", config.encoder_attention_heads), ("decoder", config.decoder_attention_heads)):
        keys, values = (heads * (width or d // heads) for width in (config.d_k, config.d_v))
        attention[stack] = (d * keys, d * values, keys + values)  # weights of Q or K, of V or the output, of the sums
    keys, values, sums = attention["encoder"]
    encoder = 2 * (keys + values) + 2 * d * config.encoder_ffn_dim + source * sums
    total = config.encoder_layers * source * encoder
    keys, values, sums = attention["decoder"]
    decoder = 3 * (keys + values) + 2 * d * config.decoder_ffn_dim + (target + source) * sums
    total += config.decoder_layers * (target * decoder + source * (keys + values))
    total += target * d * (config.target_vocab_size or config.vocab_size)
    return 3 * 2 * rows * total


def _size(number: float) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


if __name__ == "__main__":
    main(sys.argv[1:])
