"""The arguments of a run together: a recipe parsed, and the languages that it leaves open."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vanilla_transformer.command_line.parsing import parse_arguments
from vanilla_transformer.hub.languages import (
    Languages,
    find_direction,
    fitting_directions,
    load_directions,
    load_languages,
)
from vanilla_transformer.safe_files.input_files import kind_of
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.arguments.model_arguments import ModelArguments
from vanilla_transformer.training.arguments.training_arguments import TranslationTrainingArguments
from vanilla_transformer.training.arguments.vocabulary_arguments import VocabularyArguments
from vanilla_transformer.training.data.corpus_languages import languages_of_corpus


Recipe = tuple[ModelArguments, CorpusArguments, VocabularyArguments, TranslationTrainingArguments]


RECIPE_TYPES = [ModelArguments, CorpusArguments, VocabularyArguments, TranslationTrainingArguments]


def parse_recipe(description: str, argv: list[str] | None = None) -> Recipe:
    """Returns the arguments of a run: model, corpus, vocabulary, training."""
    return parse_arguments(RECIPE_TYPES, description, argv)


def with_languages(corpus_arguments: CorpusArguments, model_arguments: ModelArguments) -> CorpusArguments:
    """Fills in languages that are not given: those of the trained model to continue from, or of the corpus.

    Other languages than the model's may be given: a model for one pair is a good start for another.
    """
    if corpus_arguments.directions:
        return corpus_arguments
    given = corpus_arguments.languages
    if model_arguments.model_name_or_path and not given:
        directions = load_directions(model_arguments.model_name_or_path)
        if len(directions) > 1 and given == Languages():
            return replace(corpus_arguments, directions=list(map(str, directions)))
        recorded = load_languages(model_arguments.model_name_or_path)
        if len(directions) > 1:
            recorded = find_direction(directions, given, model_arguments.model_name_or_path)
        elif given == Languages():
            recorded = as_files_say(recorded, corpus_arguments.train_files)
        languages = Languages(given.source or recorded.source, given.target or recorded.target)
        corpus_arguments = corpus_arguments.with_languages(languages)
    return corpus_arguments.with_languages(languages_of_corpus(corpus_arguments))


def new_directions(corpus_arguments: CorpusArguments, model_arguments: ModelArguments) -> str | None:
    """Returns a sentence about the directions of a run that the trained model, if any, does not translate."""
    name = model_arguments.model_name_or_path
    known = load_directions(name) if name else ()
    new = [direction for direction in corpus_arguments.all_directions if not fitting_directions(known, direction)]
    if not known or not new:
        return None
    return f"{name} translates {', '.join(map(str, known))} and is now trained for {', '.join(map(str, new))}."


def as_files_say(languages: Languages, files: Sequence[str]) -> Languages:
    """Returns the languages of a model, or reversed if pairs of files are given that are named in that order: train.de
    and train.en are for a model from German into English."""
    suffixes = [kind_of(Path(file)).removeprefix(".") for file in files]
    is_reversed = bool(languages and files) and suffixes == [languages.target, languages.source] * (len(files) // 2)
    return Languages(*reversed(languages)) if is_reversed else languages
