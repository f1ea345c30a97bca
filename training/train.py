"""Train a translation model from a recipe.

    vanilla train demo
    vanilla train multi30k_en_de --max_steps 5000 --output_dir runs/mine
    vanilla train multi30k_en_de --source_lang en --target_lang fr --train_files data/train --validation_files data/val

A recipe is a YAML file, or the name of one that comes with this package. Every key of it is also an option here, and
the option wins. --list_recipes shows the names. A copy to change:

    vanilla train multi30k_en_de --save_recipe mine.yaml
    vanilla train mine.yaml

The same command trains in one process or, with `accelerate launch`, in several:

    accelerate launch --config_file training/accelerate_configs/eight_gpus.yaml training/train.py RECIPE

To resume a run that was stopped by Ctrl-C, SIGTERM or a crash, add --resume_from_checkpoint last. For jobs that a
scheduler may start again, --resume_from_checkpoint auto starts the run, continues it, or ends if it is finished.
"""

import re
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, set_seed
from transformers.utils import logging

from vanilla_transformer.command_line.parsing import recipe_with_options
from vanilla_transformer.command_line.recipe_files import describe_recipes, save_recipe
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.adapters import merged
from vanilla_transformer.hub.check_export import SENTENCES
from vanilla_transformer.models.searches import has_own_search, options_of
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_json
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.run_arguments import (
    RECIPE_TYPES,
    new_directions,
    parse_recipe,
    with_languages,
)
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.build_model import make_model
from vanilla_transformer.training.data.parallel_corpus import content_digests, references_of
from vanilla_transformer.training.data.prepared_text import Datasets, prepare_text
from vanilla_transformer.training.evaluation.results import RESULTS, read_results
from vanilla_transformer.training.evaluation.test_sets import sacrebleu_tokens
from vanilla_transformer.training.run_folder.checkpoint_averaging import average, load_states
from vanilla_transformer.training.run_folder.checkpoints import (
    AUTO,
    complete_checkpoints,
    find_checkpoint,
    scheduled_checkpoints,
    step_of,
)
from vanilla_transformer.training.run_folder.run_directory import (
    describe_changes,
    exclusive,
    require_fresh,
    require_resumable,
    require_same_content,
    write_description,
    write_recipe,
)
from vanilla_transformer.training.trainer import TranslationTrainer
from vanilla_transformer.training.waiting import one_first


logger = logging.get_logger(__name__)

ADAPTER_CHECK = 20  # sentences of each scored set that a merged adapter must translate as before


def main(argv: list[str] | None = None) -> None:
    words = list(sys.argv[1:] if argv is None else argv)
    with errors_as_sentences():
        match words:
            case ["--list_recipes"]:
                print(describe_recipes())
            case [recipe, *options] if "--save_recipe" in options[:-1]:
                place = options.index("--save_recipe")
                _, path = options[place : place + 2]
                del options[place : place + 2]
                parse_recipe(__doc__, [recipe, *options])  # refuses wrong options
                save_recipe(recipe, path, recipe_with_options(RECIPE_TYPES, recipe, options))
                print(f"{path} is a copy of the recipe {recipe}: change it, then run vanilla train {path}")
            case _:
                arguments = parse_recipe(__doc__, words)
                if train(*arguments) is None and arguments[-1].should_save:
                    print("To resume: add --resume_from_checkpoint last to the same command.")


def train(
    model_arguments: ModelArguments,
    corpus_arguments: CorpusArguments,
    vocabulary_arguments: VocabularyArguments,
    args: TranslationTrainingArguments,
) -> dict[str, Any] | None:
    """Does a complete run: corpus, vocabulary, model, training, average of checkpoints, test.

    Returns:
        The content of results.json, or `None` if Ctrl-C or SIGTERM stopped the run.
    """
    with exclusive(Path(args.output_dir), take_over=args.take_over) if args.process_index == 0 else nullcontext():
        return _train(model_arguments, corpus_arguments, vocabulary_arguments, args)


def _train(
    model_arguments: ModelArguments,
    corpus_arguments: CorpusArguments,
    vocabulary_arguments: VocabularyArguments,
    args: TranslationTrainingArguments,
) -> dict[str, Any] | None:
    folder = Path(args.output_dir)
    if args.resume_from_checkpoint == AUTO:
        if (folder / RESULTS).is_file():
            if args.should_save:
                print(f"The run in {folder} is finished.")
            return read_results(folder)
        args.resume_from_checkpoint = "last" if complete_checkpoints(folder) else None
    corpus_arguments = with_languages(corpus_arguments, model_arguments)
    require_validation(corpus_arguments, args)
    for direction in corpus_arguments.all_directions:
        sacrebleu_tokens(direction.target)  # says now what it lacks, not at the first evaluation
    require_fresh(folder, args.resume_from_checkpoint)
    resumed: dict[str, Any] = {}
    if checkpoint := find_checkpoint(folder, args.resume_from_checkpoint):
        resumed = require_resumable(folder, checkpoint, model_arguments, corpus_arguments, vocabulary_arguments, args)
        if args.should_save and (sentence := describe_changes(resumed)):
            print(sentence)
    if args.should_save and (sentence := new_directions(corpus_arguments, model_arguments)):
        print(sentence)
    for sentence in warnings_about(args):
        logger.warning(sentence)
    set_seed(args.seed)
    with one_first("data"):
        learn = not args.resume_from_checkpoint and args.process_index == 0
        data = prepare_text(model_arguments, corpus_arguments, vocabulary_arguments, args, learn=learn)
    corpus, datasets, tokenizers = data.corpus, data.datasets, data.tokenizers
    for split in scored_splits(datasets, corpus_arguments):  # says now that a file of references is too short
        references_of(corpus_arguments, split, datasets[split]["target"][:])
    if args.average_if_better and "validation" not in datasets:
        raise ValueError("average_if_better needs a validation set: set validation_files, or leave it out.")
    digests = data.digests or (content_digests(corpus_arguments, corpus) if args.should_save else {})
    if args.resume_from_checkpoint and args.should_save:
        require_same_content(folder, digests)
    model = make_model(model_arguments, *tokenizers, directions=corpus_arguments.all_directions)
    if args.should_save:
        write_description(folder, model, corpus, datasets, args, digests, resumed)
        write_recipe(folder, model_arguments, corpus_arguments, vocabulary_arguments, args)
    trainer = TranslationTrainer(
        model,
        args,
        processing_class=tokenizers[0],
        target_tokenizer=tokenizers[1],
        train_dataset=datasets["train"],
        eval_dataset=datasets.get("validation"),
    )
    if args.should_save:
        tokens = len(tokenizers[0])
        print(f"{corpus.report}\n{model.num_parameters():,} parameters, {tokens:,} tokens in the vocabulary")
        print(f"training in {args.precision}")
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if trainer.stopped_by_hand:
        if args.should_save:
            print(f"Stopped at step {trainer.state.global_step}; its checkpoint is saved.")
        return None
    return finish(trainer, datasets, corpus_arguments)


def warnings_about(args: TranslationTrainingArguments) -> list[str]:
    """Returns sentences about settings that silently ruin a run."""
    steps, sentences = args.max_steps, []
    if 0 < steps <= args.get_warmup_steps(steps):
        sentences.append(
            f"The warm-up of warmup_steps={args.warmup_steps:g} updates does not end before max_steps={steps}: the "
            "learning rate rises until the end. Give fewer warmup_steps."
        )
    if args.eval_strategy == "no" or (args.eval_strategy == "steps" and 0 < steps <= args.eval_steps):
        sentences.append(
            "There is no evaluation before the end, so nothing shows whether the model learns: set eval_strategy to "
            "steps, and eval_steps below max_steps."
        )
    return sentences


def require_validation(corpus_arguments: CorpusArguments, args: TranslationTrainingArguments) -> None:
    """Refuses evaluations during training without a validation set."""
    if args.eval_strategy != "no" and not corpus_arguments.dataset and not corpus_arguments.validation_files:
        raise ValueError(
            f"eval_strategy is {args.eval_strategy.value!r}, but there is no text to evaluate on: give "
            "--validation_files, or --eval_strategy no."
        )


def finish(trainer: TranslationTrainer, datasets: Datasets, corpus_arguments: CorpusArguments) -> dict[str, Any]:
    """Makes the final model, measures it on the validation set and all test sets, and saves it.

    Returns:
        The content of results.json.
    """
    args, folder = trainer.args, Path(trainer.args.output_dir)
    model = trainer.whole_model()
    results: dict[str, Any] = {
        **_load_final_weights(trainer, model, datasets.get("validation")),
        "ema_decay": args.ema_decay,
        "precision": args.precision,
        "decoding": asdict(options_of(model)),
        "decoded_by": "generate" if has_own_search(model) else "Translator",
    }
    scored = scored_splits(datasets, corpus_arguments)
    for split in scored:
        references = references_of(corpus_arguments, split, datasets[split]["target"][:])
        results[split] = trainer.evaluator.score(
            model, datasets[split], folder / f"{split}.hypotheses.txt", references
        )
    if args.should_save:
        compared = [text for split in scored for text in datasets[split][:ADAPTER_CHECK]["source"]]
        model = merged(model, trainer.processing_class, compared or SENTENCES)
        with whole_folder(folder / "model", known_by="config.json", overwrite=True) as temporary:
            trainer.save_final(model, temporary)
        write_json(folder / RESULTS, results)
        for split in scored:
            bleu, perplexity = results[split]["sacrebleu"], results[split]["perplexity"]
            print(f"{split}: BLEU {bleu['score']:.2f} ({bleu['signature']}), perplexity {perplexity:.3f}")
            for direction, figures in results[split].get("directions", {}).items():
                print(f"  {direction}: BLEU {figures['sacrebleu']['score']:.2f}")
        if not has_own_search(model):
            print(f"BLEU is that of Translator: generate() of {type(model).__name__} is transformers' own search.")
        print(f"model in {folder / 'model'}, everything else beside it; vanilla export --run {folder} writes its card")
    return results


def scored_splits(datasets: Datasets, corpus_arguments: CorpusArguments) -> list[str]:
    """Returns the sets that the final model is measured on."""
    return [split for split in ("validation", "test", *corpus_arguments.further_test_sets) if split in datasets]


def _load_final_weights(
    trainer: TranslationTrainer, model: PreTrainedModel, validation: Dataset | None
) -> dict[str, Any]:
    """Loads the average of the last checkpoints, or the moving average.

    Returns:
        For results.json: the names of the averaged checkpoints, and the BLEU that the choice was made by, if any.
    """
    args = trainer.args
    done = [path for path in scheduled_checkpoints(args.output_dir) if step_of(path) <= trainer.state.global_step]
    # Those of the first half know too little: a shortened recipe would average them with the last.
    late = [path for path in done if step_of(path) >= trainer.state.global_step / 2]
    averaged = late[-args.average_checkpoints :] if args.average_checkpoints and not args.ema_decay else []
    if trainer.ema is not None:
        _load_state(model, trainer.ema.state)
    if not averaged:
        return {"averaged": []}
    names = [path.name for path in averaged]
    compare = validation is not None if args.average_if_better is None else args.average_if_better
    if not compare or validation is None:
        _load_state(model, average(load_states(averaged)))
        _say(trainer, f"The final model is the mean of {', '.join(names)}.")
        return {"averaged": names}
    last = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    bleu = {"last": trainer.evaluator.bleu(model, validation)}
    _load_state(model, average(load_states(averaged)))
    bleu["mean"] = trainer.evaluator.bleu(model, validation)
    chosen, other = f"the mean of {', '.join(names)}", "the last weights"
    if bleu["mean"] < bleu["last"]:
        _load_state(model, last)
        names, chosen, other = [], other, chosen
    best, worst = max(bleu.values()), min(bleu.values())
    _say(trainer, f"The final model is {chosen}: BLEU {best:.2f} on the validation set, {worst:.2f} for {other}.")
    return {"averaged": names, "validation_bleu_of": bleu}


def _say(trainer: TranslationTrainer, sentence: str) -> None:
    if trainer.args.should_save:
        print(sentence)


def _load_state(model: PreTrainedModel, state: dict[str, torch.Tensor]) -> None:
    missing, unexpected = model.load_state_dict(state, strict=False)
    # Checkpoints hold a tied matrix under one of its names, and no tables that the model computes itself.
    computed = model._keys_to_ignore_on_save or ()
    missing = [
        name
        for name in missing
        if name not in model.all_tied_weights_keys and not any(re.search(pattern, name) for pattern in computed)
    ]
    if missing or unexpected:
        raise ValueError(f"The averaged weights do not fit the model: missing {missing}, unexpected {unexpected}.")
    model.tie_weights()


if __name__ == "__main__":
    main()
