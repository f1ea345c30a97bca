"""Train a translation model from a recipe.

    vanilla-train training/recipes/demo.yaml
    vanilla-train training/recipes/multi30k_en_de.yaml --max_steps 5000 --output_dir runs/mine

A recipe is a YAML file; every key of it is also an option here, and the option wins. The same command trains in one
process or, behind `accelerate launch`, in many:

    accelerate launch --config_file training/accelerate/eight_gpus.yaml training/train.py RECIPE

A run that was stopped, by Ctrl-C or by a power cut, goes on with --resume_from_checkpoint last.
"""

from pathlib import Path

from vanilla_transformer.training.arguments import (
    CorpusArguments,
    ModelArguments,
    VocabularyArguments,
    errors_as_sentences,
    parse_arguments,
)


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        train(*parse_recipe(__doc__, argv))


def parse_recipe(description: str, argv: list[str] | None = None) -> tuple:
    """The arguments of a run: model, corpus, vocabulary, training."""
    from vanilla_transformer.training.training_arguments import TranslationTrainingArguments

    types = [ModelArguments, CorpusArguments, VocabularyArguments, TranslationTrainingArguments]
    return parse_arguments(types, description, argv)


def train(model_arguments, corpus_arguments, vocabulary_arguments, args) -> dict | None:
    """One whole run: text, vocabulary, model, training, mean of checkpoints, test. Returns the results, or None if the
    run was stopped on the way."""
    from transformers import set_seed

    from vanilla_transformer.training.run_directory import (
        require_fresh,
        require_same_data,
        write_description,
        write_recipe,
    )
    from vanilla_transformer.training.trainer import TranslationTrainer

    folder = Path(args.output_dir)
    require_fresh(folder, args.resume_from_checkpoint)
    if args.resume_from_checkpoint:
        require_same_data(folder, model_arguments, corpus_arguments, vocabulary_arguments, args)
    set_seed(args.seed)
    with args.main_process_first(local=False, desc="reading the corpus"):
        # A fresh run learns its own vocabulary, whatever a refused one may have left; the other processes load it.
        learn = not args.resume_from_checkpoint and args.process_index == 0
        corpus, datasets, tokenizers = prepare_data(
            model_arguments, corpus_arguments, vocabulary_arguments, folder, learn=learn
        )
    model = make_model(model_arguments, *tokenizers)
    if args.should_save:
        write_recipe(folder, model_arguments, corpus_arguments, vocabulary_arguments, args)
    trainer = TranslationTrainer(
        model,
        args,
        tokenizer=tokenizers[0],
        target_tokenizer=tokenizers[1],
        train_dataset=datasets["train"],
        eval_dataset=datasets.get("validation"),
    )
    if args.should_save:
        write_description(folder, model, corpus, datasets, args)
        print(f"{corpus.report}\n{model.num_parameters():,} parameters, {len(tokenizers[0]):,} pieces")
    trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    if trainer.stopped_by_hand:
        if args.should_save:
            print(f"Stopped at step {trainer.state.global_step}. To go on: add --resume_from_checkpoint last")
        return None
    return finish(trainer, datasets)


def prepare_data(model_arguments, corpus_arguments, vocabulary_arguments, folder: Path, *, learn: bool):
    """The corpus, its tokenised splits, and the tokenizers: given, learned now, or learned when the run began."""
    from datasets import Dataset, IterableDataset

    from vanilla_transformer.atomic_writes import whole_folder
    from vanilla_transformer.tokenization_vanilla_transformer import load_tokenizers
    from vanilla_transformer.training.corpus import load_corpus, tokenize
    from vanilla_transformer.training.vocabulary import learn_vocabularies

    corpus = load_corpus(corpus_arguments)
    place = model_arguments.tokenizer or model_arguments.model_name_or_path or folder / "tokenizer"
    if place == folder / "tokenizer" and learn:
        with whole_folder(place, known_by="tokenizer.json", overwrite=True) as temporary:
            learn_vocabularies(corpus["train"], vocabulary_arguments, temporary)
    tokenizers = load_tokenizers(place)
    datasets = {}
    for split, text in corpus.splits.items():
        if split != "train" and isinstance(text, IterableDataset):
            text = Dataset.from_list(list(text))  # evaluation needs the whole of it, which is small
        datasets[split] = tokenize(text, *tokenizers, keep_text=True, num_proc=corpus_arguments.num_proc)
    return corpus, datasets, tokenizers


def make_model(model_arguments, tokenizer, target_tokenizer):
    """A new model that fits the tokenizers, or a trained one to go on from."""
    import torch
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration

    overrides = model_arguments.model_config or {}
    if model_arguments.model_name_or_path:
        path = model_arguments.model_name_or_path
        _require_same_shape(AutoConfig.from_pretrained(path), overrides, path)
        model = AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32, **overrides)
        return _with_decoding(model, model_arguments)
    config = VanillaTransformerConfig.from_preset(
        model_arguments.preset,
        **{
            "vocab_size": len(tokenizer),
            "target_vocab_size": None if target_tokenizer is None else len(target_tokenizer),
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": tokenizer.bos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
            "decoder_start_token_id": tokenizer.bos_token_id,
            **overrides,
        },
    )
    return _with_decoding(VanillaTransformerForConditionalGeneration(config), model_arguments)


def _require_same_shape(config, overrides: dict, path: str) -> None:
    """A trained model's dropout and smoothing may change when it goes on, but not what its weights depend on."""
    for name, value in overrides.items():
        if not hasattr(config, name):
            raise ValueError(f"model_config sets {name!r}, which the model {path} has no field of: leave it out.")
        own = getattr(config, name)
        if value != own and "dropout" not in name and name != "label_smoothing":
            raise ValueError(
                f"model_config sets {name}={value!r}, but the trained model {path} has {own!r}: leave it out of the "
                "recipe, or set it to that."
            )


def _with_decoding(model, model_arguments):
    """The model with the recipe's settings for decoding among its own, where there are any."""
    from vanilla_transformer.decoding_options import set_decoding

    asked = {name: getattr(model_arguments, name) for name in ("num_beams", "length_penalty")}
    if any(value is not None for value in asked.values()):
        set_decoding(model.generation_config, **asked)
    return model


def finish(trainer, datasets) -> dict:
    """The mean of the last checkpoints as the final model, and its results on the validation and test sets."""
    from vanilla_transformer.atomic_writes import whole_folder
    from vanilla_transformer.decoding_options import with_defaults
    from vanilla_transformer.training.averaging import average, checkpoints, load_states, step_of
    from vanilla_transformer.training.run_directory import write_json

    args, folder = trainer.args, Path(trainer.args.output_dir)
    done = [path for path in checkpoints(folder) if step_of(path) <= trainer.state.global_step]
    last = done[-args.average_checkpoints :] if args.average_checkpoints and not args.ema_decay else []
    model = trainer.whole_model()
    if last or args.ema_decay:
        state = average(load_states(last)) if last else trainer.ema.state
        missing, unexpected = model.load_state_dict(state, strict=False)
        # A tied matrix is kept once: only its other names may be missing.
        if unexpected or set(missing) - model.all_tied_weights_keys.keys():
            raise ValueError(f"The averaged weights do not fit the model: missing {missing}, unexpected {unexpected}.")
        model.tie_weights()
    results: dict = {"averaged": [path.name for path in last], "ema_decay": args.ema_decay}
    results["decoding"] = with_defaults(model.generation_config)
    scored = [split for split in ("validation", "test") if split in datasets]
    for split in scored:
        results[split] = trainer.score(model, datasets[split], folder / f"{split}.hypotheses.txt")
    if args.should_save:
        with whole_folder(folder / "model", known_by="config.json", overwrite=True) as temporary:
            trainer.save_final(model, temporary)
        write_json(folder / "results.json", results)
        for split in scored:
            found = results[split]
            print(f"{split}: BLEU {found['bleu']:.2f} ({found['signature']}), perplexity {found['perplexity']:.3f}")
        print(f"model in {folder / 'model'}, everything else beside it")
    return results


if __name__ == "__main__":
    main()
