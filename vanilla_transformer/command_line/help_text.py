"""The layout of `--help`: the main options on about a screen. `--help all` shows all, those of the library last."""

import inspect
from argparse import SUPPRESS, Action, ArgumentDefaultsHelpFormatter, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Any

from vanilla_transformer.models.searches import all_options

from .dataclass_parser import as_bool


# The order of the groups of a training command. Other groups come first.
ORDER = ("text", "vocabulary", "model", "training", "decoding")
# Options of several dataclasses that belong together.
DECODING = (*all_options(), "eval_beams")
# Options of the library that almost every run needs.
OFTEN_NEEDED = (
    *("output_dir", "resume_from_checkpoint", "seed", "num_train_epochs", "gradient_accumulation_steps"),
    *("eval_strategy", "eval_steps", "save_steps", "save_total_limit", "use_cpu"),
)
# Rooms whose dataclasses several commands share, and which of their options `--help` shows.
SHARED = ("vanilla_transformer.command_line", "vanilla_transformer.bulk_translation", "vanilla_transformer.training")
MAIN = {
    *("source_lang", "target_lang", "directions", "dataset", "train_files", "validation_files", "test_files"),
    *("vocab_size", "preset", "model_config", "model_name_or_path", "max_tokens", "tokens_per_update", "max_steps"),
    "learning_rate",
    *("warmup_steps", "output_dir", "resume_from_checkpoint", "seed", "eval_steps", "use_cpu", "bf16"),
    *("num_beams", "length_penalty", "backend", "quantization", "device", "processes", "overwrite"),
    *("tflops", "utilisation"),
}
# Options of single commands that few readers of `--help` need.
RARE = {
    *("text", "window", "text_column", "translation_column", "prefix", "source_lang", "resume", "cors_origins"),
    *("length_bounds", "bootstrap_samples", "keep_parts"),
}
# Better words for options of the library, as they work here.
HELP = {
    "output_dir": "Folder of the run: recipe, metrics, checkpoints and the final model.",
    "resume_from_checkpoint": "last, or a checkpoint of this run, to continue a run that was stopped; auto to start "
    "or continue it, whichever fits.",
    "num_train_epochs": "Passes over the training text, with --max_steps -1.",
    "gradient_accumulation_steps": "Batches of an update in each process; better set tokens_per_update.",
    "eval_strategy": "When to evaluate on the validation set.",
    "eval_steps": "Updates between two evaluations.",
    "save_steps": "Updates between two checkpoints.",
    "save_total_limit": "Number of checkpoints that are kept; older ones are deleted.",
    "seed": "Seed of weights, dropout and the order of batches.",
    "use_cpu": "Train on the CPU even if there is a GPU.",
}
METAVARS = {
    **dict.fromkeys(("input", "output", "glossary", "access_log", "api_keys"), "FILE"),
    **{"initialize_from": "FOLDER", "report_to": "LOGGERS", "only_shards": "N"},
}
LIBRARY_GROUP = "options of the library's trainer (transformers.Seq2SeqTrainingArguments)"


class HelpFormatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Shows the default of each option where it tells something, and the description with its own line breaks."""

    def __init__(self, prog: str, **options: Any):
        super().__init__(prog, **{"max_help_position": 32, **options})

    def _get_default_metavar_for_optional(self, action: Action) -> str:
        """N for a number, else the last word of the name: --train_files FILES."""
        if action.type in (int, float):
            return "N"
        return "BOOL" if action.type is as_bool else METAVARS.get(action.dest, action.dest.split("_")[-1].upper())

    def _format_action_invocation(self, action: Action) -> str:
        """Shows one spelling of an option, --max_tokens and not --max-tokens."""
        shown = [name for name in action.option_strings if "-" not in name.removeprefix("--")] or action.option_strings
        if action.nargs == 0 or (action.nargs == "?" and action.const is True):  # --overwrite: its value is optional
            return ", ".join(shown)
        return f"{shown[-1]} {self._format_args(action, self._get_default_metavar_for_optional(action))}"

    def _get_help_string(self, action: Action) -> str | None:
        if action.default in (None, [], False, SUPPRESS) or action.nargs == 0:
            return action.help
        return super()._get_help_string(action)


class Help(Action):
    """`--help`: the main options. `--help all`: all of them, and the whole description."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any):
        choice: dict[str, Any] = {"nargs": "?", "const": "main", "choices": ["main", "all"]}
        super().__init__(option_strings, dest=SUPPRESS, default=SUPPRESS, help=kwargs["help"], **choice)

    def __call__(self, parser: ArgumentParser, namespace: Any, values: Any, option_string: str | None = None) -> None:
        hidden = [action for action in parser._actions if hasattr(action, "whole_help")]
        if values == "all":
            for action in hidden:
                action.help = action.whole_help
        else:
            parser.description = beginning(parser.description or "")
            left_out = {action.dest for action in hidden}
            parser.epilog = f"{len(left_out)} more options: --help all" if left_out else None
        parser.print_help()
        parser.exit()


def beginning(description: str) -> str:
    """Returns the paragraphs of a description up to its first commands, which are indented."""
    paragraphs = description.strip("\n").split("\n\n")
    commands = [index for index, text in enumerate(paragraphs) if text.startswith("    ")]
    return "\n\n".join(paragraphs[: commands[0] + 1] if commands else paragraphs) + "\n"


def arrange(parser: ArgumentParser, types: Sequence[type]) -> None:
    """Sorts the options of a parser into groups, and hides all but the main ones until `--help all`.

    Args:
        parser: A parser with the options of the dataclasses.
        types: The dataclasses. `help_group` is the title of their group.
    """
    of_library = {name for cls in types for name in _inherited(cls)}
    inherited = of_library - set(OFTEN_NEEDED)
    titles: dict[str, str] = {}
    for cls in types:
        for name in cls.__dataclass_fields__:  # type: ignore[attr-defined]
            titles.setdefault(name, LIBRARY_GROUP if name in inherited else getattr(cls, "help_group", "options"))
    if "training" in titles.values():
        titles |= dict.fromkeys(DECODING, "decoding")
    own = [title for title in titles.values() if title not in (*ORDER, LIBRARY_GROUP)]
    order = dict.fromkeys([*own, *(title for title in ORDER if title in titles.values()), LIBRARY_GROUP])
    actions = [action for action in parser._actions if action.dest in titles]
    parser._action_groups = [parser._optionals]
    parser._optionals.title = "help"
    parser._optionals._group_actions = [action for action in parser._actions if action.dest not in titles]
    for title in order:
        group = parser.add_argument_group(title)
        group._group_actions = [action for action in actions if titles[action.dest] == title]
    main = {name for cls in types for name in _main_options(cls)}
    for action in actions:
        if action.dest in of_library:
            action.help = HELP.get(action.dest, action.help)
        _describe(action, hidden=action.dest not in main)
    parser.add_argument("-h", "--help", action=Help, help="Show the main options; --help all shows every option.")


def _main_options(cls: type) -> set[str]:
    """The options that `--help` shows: those of a command's own dataclass, and the main ones of shared dataclasses."""
    names = set(cls.__dataclass_fields__)  # type: ignore[attr-defined]
    return names & MAIN if cls.__module__.startswith(SHARED) else names - RARE


def _inherited(cls: type) -> set[str]:
    """The fields of a dataclass that come from a library and are not declared again here."""
    own = {name for base in cls.__mro__ if base.__module__.startswith("vanilla_transformer") for name in _own(base)}
    return set(cls.__dataclass_fields__) - own  # type: ignore[attr-defined]


def _own(cls: type) -> set[str]:
    return set(inspect.get_annotations(cls))


def _describe(action: Action, *, hidden: bool) -> None:
    if action.const is False and action.nargs == 0:  # the form --no_... of an option that is on by default
        action.help = f"Turn off --{action.dest}."
    if hidden:
        action.whole_help, action.help = action.help, SUPPRESS  # type: ignore[attr-defined]
