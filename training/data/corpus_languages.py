"""The directions of a corpus, and which of its files serve each."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from vanilla_transformer.hub.languages import (
    Directions,
    Languages,
    agreed_languages,
    find_direction,
    load_directions,
    load_languages,
)
from vanilla_transformer.training.arguments.corpus_arguments import CorpusArguments
from vanilla_transformer.training.data.corpus_files import files_of_direction


if TYPE_CHECKING:
    from vanilla_transformer.command_line.inference_arguments import LoadingArguments


DEMO_LANGUAGES = ("en", "de")


def of_direction(arguments: CorpusArguments, direction: Languages) -> CorpusArguments:
    """Returns the arguments of one direction of a corpus: its languages, and the files that serve it."""

    def chosen(entries: list[str]) -> list[str]:
        return [path for _, path in files_of_direction(entries, *map(str, direction))]

    train_files = files_of_direction(arguments.train_files, *map(str, direction))
    weights = [arguments.train_weights[number] for number, _ in train_files] if arguments.train_weights else []
    return replace(
        arguments.with_languages(direction),
        train_files=[path for _, path in train_files],
        train_weights=weights,
        validation_files=chosen(arguments.validation_files),
        test_files=chosen(arguments.test_files),
        test_sets=[f"{name}={path}" for name, files in arguments.further_test_sets.items() for path in chosen(files)],
    )


def directions_of_corpus(arguments: CorpusArguments) -> Directions:
    """Returns the directions of a corpus: one, if it has not several."""
    return arguments.all_directions if arguments.directions else (Languages(*languages_of_corpus(arguments)),)


def languages_of_corpus(arguments: CorpusArguments) -> tuple[str, str]:
    """Returns the languages of a corpus, which name its files and columns. The demo has a direction by default."""
    languages = arguments.languages
    if languages.source is not None and languages.target is not None:
        return languages.source, languages.target
    if arguments.dataset == "demo" and languages == Languages():
        return DEMO_LANGUAGES
    raise ValueError(
        f"The languages of the corpus are not known ({languages}): set source_lang and target_lang, for example "
        "--source_lang en --target_lang de."
    )


def languages_of_models(
    given: Languages, models: Iterable[str], loading: "LoadingArguments", direction: str | None = None
) -> Languages:
    """Returns the languages that are given, or else those of models. They must not contradict each other. Of a model
    with several directions, the given languages must choose one.

    Args:
        given: The languages that are given.
        models: Folders or names of models, of which only the config is read.
        loading: How they are loaded.
        direction: That of `vanilla backtranslate`; with `"back"`, the models translate from target to source.
    """
    for model in models:
        options = {"revision": loading.revision, "trust_remote_code": loading.trust_remote_code}
        recorded = load_languages(model, **options)
        if len(several := load_directions(model, **options)) > 1:
            wanted = Languages(*reversed(given)) if direction == "back" else given
            recorded = find_direction(several, wanted, model)
        of_pairs = Languages(*reversed(recorded)) if direction == "back" else recorded
        try:
            given = agreed_languages(given, of_pairs, model)
        except ValueError as error:
            if direction is None:
                raise
            raise ValueError(
                f"{model} translates {recorded}. With --direction {direction} it makes pairs for {of_pairs}, not for "
                f"{given}: choose another model or direction, or correct source_lang and target_lang."
            ) from error
    return given
