"""The layout of `--help`: options in groups, this package's first; those of the library only with `--help_all`."""

import inspect
from argparse import SUPPRESS, Action, ArgumentDefaultsHelpFormatter, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from vanilla_transformer.models.search_options import BeamSearchOptions, all_options


# The order of the groups of a training command. Other groups come first.
ORDER = ("text", "vocabulary", "model", "training", "decoding")
# Options of several dataclasses that belong together.
DECODING = (*all_options(), "eval_beams")
# Options of the library that almost every run needs.
OFTEN_NEEDED = (
    *("output_dir", "resume_from_checkpoint", "seed", "num_train_epochs", "gradient_accumulation_steps"),
    *("eval_strategy", "eval_steps", "save_steps", "save_total_limit", "use_cpu", "bf16"),
)
# Better words for options of the library, as they work here.
HELP = {
    "output_dir": "Folder of the run: recipe, metrics, checkpoints and the final model.",
    "resume_from_checkpoint": "last, or a checkpoint of this run, to continue a run that was stopped.",
    "num_train_epochs": "Passes over the training text, with --max_steps -1.",
    "gradient_accumulation_steps": "Batches of an update: more of them act as a larger max_tokens.",
    "eval_strategy": "When to evaluate on the validation set.",
    "eval_steps": "Updates between two evaluations.",
    "save_steps": "Updates between two checkpoints.",
    "save_total_limit": "Number of checkpoints that are kept; older ones are deleted.",
    "seed": "Seed of weights, dropout and the order of batches.",
    "use_cpu": "Train on the CPU even if there is a GPU.",
    "bf16": "Compute in bfloat16, on a GPU that has it or, with --use_cpu, on a CPU that has it (AVX512-BF16).",
}
LIBRARY_GROUP = "options of the library's trainer (transformers.Seq2SeqTrainingArguments)"


class HelpFormatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Shows the default of each option where it tells something, and the description with its own line breaks."""

    def _format_action_invocation(self, action: Action) -> str:
        """Shows one spelling of an option, --max_tokens and not --max-tokens."""
        shown = [name for name in action.option_strings if "-" not in name.removeprefix("--")] or action.option_strings
        if action.nargs == 0:
            return ", ".join(shown)
        return f"{shown[-1]} {self._format_args(action, self._get_default_metavar_for_optional(action))}"

    def _get_help_string(self, action: Action) -> str | None:
        if action.default in (None, [], False, SUPPRESS) or action.nargs == 0:
            return action.help
        return super()._get_help_string(action)


class HelpAll(Action):
    """`--help_all`: the help with the options of the library."""

    def __init__(self, option_strings: Sequence[str], dest: str, **kwargs: Any):
        super().__init__(option_strings, dest=SUPPRESS, default=SUPPRESS, nargs=0, help=kwargs["help"])

    def __call__(self, parser: ArgumentParser, *args: Any) -> None:
        for group in parser._action_groups:
            for action in group._group_actions:
                action.help = getattr(action, "library_help", action.help)
        parser.print_help()
        parser.exit()


def arrange(parser: ArgumentParser, types: Sequence[type]) -> None:
    """Sorts the options of a parser into groups, and hides those that a dataclass inherits from the library.

    Args:
        parser: A parser with the options of the dataclasses.
        types: The dataclasses. `help_group` is the title of their group.
    """
    inherited = {name for cls in types for name in _inherited(cls) if name not in OFTEN_NEEDED}
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
    rare = all_options().keys() - {
        option.name for option in fields(BeamSearchOptions)
    }  # other searches than the paper's
    for action in actions:
        _describe(action, hidden=action.dest in inherited | rare)
    if inherited or rare:
        parser.add_argument("--help_all", action=HelpAll, help="Show the options of the library's trainer too.")


def _inherited(cls: type) -> set[str]:
    """The fields of a dataclass that come from a library and are not declared again here."""
    own = {name for base in cls.__mro__ if base.__module__.startswith("vanilla_transformer") for name in _own(base)}
    return set(cls.__dataclass_fields__) - own  # type: ignore[attr-defined]


def _own(cls: type) -> set[str]:
    return set(inspect.get_annotations(cls))


def _describe(action: Action, *, hidden: bool) -> None:
    action.help = HELP.get(action.dest, action.help) if action.dest in OFTEN_NEEDED else action.help
    if action.const is False and action.nargs == 0:  # the form --no_... of an option that is on by default
        action.help = f"Turn off --{action.dest}."
    if hidden:
        action.library_help, action.help = action.help, SUPPRESS  # type: ignore[attr-defined]
