"""The command line and recipes as dataclasses, with every mistake as one sentence."""

import json
import sys
from argparse import SUPPRESS, Action
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import field
from itertools import zip_longest
from typing import Any, NoReturn

from vanilla_transformer.command_line.dataclass_parser import DataclassParser, as_bool, as_bool_or_word
from vanilla_transformer.command_line.help_text import HelpFormatter, arrange
from vanilla_transformer.command_line.program import program_name
from vanilla_transformer.command_line.recipe_files import find_recipe, read_recipe
from vanilla_transformer.command_line.texts import IsValue, take_texts
from vanilla_transformer.models.searches import all_options
from vanilla_transformer.models.spelling import suggestion


def key(default: Any, help: str) -> Any:
    """Makes a dataclass field with a default and a text for `--help`."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"help": help})
    return field(default=default, metadata={"help": help})


def search_fields(what_then: str) -> list[tuple[str, Any, Any]]:
    """The options of all searches as fields of a dataclass, for `make_dataclass`. `None` means not given.

    Args:
        what_then: Ends the help text of each; `{default}` is the default of the search.
    """
    return [
        (
            option.name,
            option.type | None,  # type: ignore[operator]
            key(None, option.metadata["help"] + what_then.format(default=option.default)),
        )
        for option in all_options().values()
    ]


class _Parser(DataclassParser):
    """Raises a ValueError with one sentence instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help).")


def parse_arguments(
    types: Sequence[type], description: str, argv: Sequence[str] | None = None, *, texts: IsValue | None = None
) -> tuple:
    """Returns one instance of each dataclass from the command line. Its first word may be a recipe.

    A recipe is a YAML file, or the name of one that comes with the package. It has the same keys as the command line,
    and the command line wins. Unknown keys are refused.

    Args:
        types: The dataclasses.
        description: The text above the options in `--help`.
        argv: The words of the command line; those of this process by default.
        texts: If given, words that are neither options nor their values are the option `text`, see `take_texts`.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    usage = f"%(prog)s [{'RECIPE' if texts is None else 'TEXT ...'}] [options]"
    parser = _Parser(
        types,
        prog=program_name(),
        description=description,
        formatter_class=HelpFormatter,
        usage=usage,
        add_help=False,
        allow_abbrev=False,  # --output is ambiguous between the spellings --output_dir and --output-dir
    )
    known = {action.dest for action in parser._actions}
    arrange(parser, types)
    recipe: dict[str, Any] = {}
    found: list[str] = []
    if texts is not None:
        is_recipe = bool(words) and words[0].endswith((".yaml", ".yml"))
        found, others = take_texts(words[is_recipe:], parser._actions, texts)
        words = [*words[:is_recipe], *others]
    if words and not words[0].startswith("-"):
        recipe = read_recipe(find_recipe(words.pop(0)), known)
        _drop_replaced(recipe, words)
        actions = {action.dest: action for action in reversed(parser._actions)}  # reversed: not the form --no_...
        parser.set_defaults(**{name: _as_typed(name, value, actions[name]) for name, value in recipe.items()})
    if found:
        parser.set_defaults(text=found)
    for name, value in _given(words).items():
        if name not in known and (advice := _advice(name, value, known)):
            raise ValueError(f"'--{name}' is not an option: {advice}.")
    namespace, unknown = parser.parse_known_args(words)
    for word in unknown:
        if "directions" in known and words[max(words.index(word) - 2, 0)].endswith("_lang"):
            raise ValueError(f"{word!r}: several languages are directions, for example --directions en-de en-fr.")
        fields = _fields_of_models() if "model_config" in known else set()
        hint = suggestion(word.split("=")[0].lstrip("-").replace("-", "_"), known | fields)
        raise ValueError(f"{word!r} is not an option{hint}: see --help for all options.")
    options = vars(namespace)
    _require_finite(options)
    return parser.dataclasses_of({name: _merged(recipe.get(name), value) for name, value in options.items()})


def recipe_with_options(types: Sequence[type], recipe: str, words: Sequence[str]) -> dict[str, Any]:
    """Returns the content of a recipe with the options of a command line in it.

    Args:
        types: The dataclasses of the command.
        recipe: Name or path of the recipe.
        words: The options.
    """
    parser = _Parser(types, add_help=False, allow_abbrev=False)
    for action in parser._actions:
        action.default = SUPPRESS
    content = read_recipe(find_recipe(recipe), {action.dest for action in parser._actions})
    _drop_replaced(content, words)
    given = vars(parser.parse_args(words))
    return content | {name: _merged(content.get(name), value) for name, value in given.items()}


def _require_finite(options: dict[str, Any]) -> None:
    """Refuses numbers that no option means: NaN passes every comparison, and infinity ends in an overflow."""
    for name, value in options.items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and not -(2**63) < number < 2**63:
                raise ValueError(f"{name}={number} is no number that can be computed with: give another.")


# Names that other programs have for what is an option of another kind here.
ADVICE = {
    "batch_size": "batch size is set in tokens: --max_tokens",
    "train_batch_size": "batch size is set in tokens: --max_tokens",
    "epochs": "updates are counted: --max_steps, or --max_steps -1 --num_train_epochs for epochs",
    "lr": "the learning rate is --learning_rate",
    "beam_size": "the beam size is --num_beams",
    "src_lang": "the languages are --source_lang and --target_lang",
    "tgt_lang": "the languages are --source_lang and --target_lang",
    "lang_pairs": "several directions are --directions en-de de-en",
}


# Names that other programs have for fields of the model's config.
FIELDS = {
    "layers": "encoder_layers",
    "heads": "encoder_attention_heads",
    "num_heads": "encoder_attention_heads",
    "d_ff": "encoder_ffn_dim",
    "ffn_dim": "encoder_ffn_dim",
    "dropout_rate": "dropout",
    "label_smoothing_factor": "label_smoothing",
}


def _advice(name: str, value: str, known: set[str]) -> str | None:
    """Returns what to write in place of an option that does not exist, if that is known.

    Args:
        name: The name of the option.
        value: The word after it, or nothing.
        known: The options of the command.
    """
    if name in ADVICE:
        return ADVICE[name]
    field_name = FIELDS.get(name, name)
    if "model_config" not in known or field_name not in _fields_of_models():
        return None
    try:
        content = json.loads(value)
    except json.JSONDecodeError:
        content = value
    return f"it is a field of the model: --model_config '{json.dumps({field_name: content})}'"


def _fields_of_models() -> set[str]:
    """The fields of the configs that a recipe's `model_config` sets."""
    from vanilla_transformer.models.configuration_mask_predict import MaskPredictConfig
    from vanilla_transformer.models.configuration_rnn_search import RnnSearchConfig
    from vanilla_transformer.models.configuration_vanilla_transformer import VanillaTransformerConfig

    configs = (VanillaTransformerConfig, RnnSearchConfig, MaskPredictConfig)
    return {name for config in configs for name in config.__dataclass_fields__}


def _given(words: Sequence[str]) -> dict[str, str]:
    """The names of the options on a command line, each with its value or the word after it."""
    given = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            given[name.replace("-", "_")] = value if equals else following
    return given


# Keys of a recipe that an option on the command line contradicts, and so replaces.
_FILES = ("train_files", "validation_files", "test_files")
REPLACED = {
    **dict.fromkeys(_FILES, ("dataset", "train_weights")),
    "dataset": (*_FILES, "train_weights"),
    "directions": ("source_lang", "target_lang"),
    **dict.fromkeys(("source_lang", "target_lang"), ("directions", "temperature")),
    "learning_rate": ("rate_factor",),
    "rate_factor": ("learning_rate",),
    "max_steps": ("num_train_epochs",),
    "tokens_per_update": ("gradient_accumulation_steps",),
    "gradient_accumulation_steps": ("tokens_per_update",),
    "model_name_or_path": ("initialize_from",),
    "initialize_from": ("model_name_or_path", "lora_rank"),
    "added_subwords": ("new_vocabulary",),
    "new_vocabulary": ("added_subwords",),
    "mark_capitals": ("lowercase",),
    "lowercase": ("mark_capitals",),
    "ema_decay": ("average_if_better",),
    "fp16": ("bf16",),
    "bf16": ("fp16",),
}


def _drop_replaced(recipe: dict[str, Any], words: Sequence[str]) -> None:
    """Drops the keys of a recipe that contradict the options of the command line."""
    given = {name for name, value in _given(words).items() if value != ""}  # --dataset= replaces nothing
    for name in given:
        if name == "dataset" and given.intersection(_FILES):
            continue
        for replaced in REPLACED.get(name, ()):
            if replaced not in given:
                recipe.pop(replaced, None)
    if "num_train_epochs" in given and "max_steps" not in given and "max_steps" in recipe:
        recipe["max_steps"] = -1


def _as_typed(name: str, value: Any, action: Action) -> Any:
    """Converts a recipe's value to what the command line would give, so that the same checks apply."""
    if value is None and action.default is not None:
        raise ValueError(f"The recipe has a key {name!r} without a value: give it one, or leave it out.")
    takes_one = action.nargs != "+" and (action.type in (int, float, as_bool, as_bool_or_word) or action.choices)
    if isinstance(value, list | dict) and takes_one:
        raise ValueError(f"The recipe has {name}={value!r}, but {name} takes one value.")
    if isinstance(value, str) and action.nargs == "+":
        return [value]
    is_number = isinstance(value, int | float) and not (isinstance(value, bool) and action.type is str)
    return str(value) if is_number else value


def _merged(recipe_value: Any, value: Any) -> Any:
    """Merges dicts: `--model_config '{"dropout": 0.3}'` changes one field of the recipe's dict."""
    if not isinstance(recipe_value, dict) or not isinstance(value, str):
        return value
    with suppress(json.JSONDecodeError):  # the dataclass reports invalid JSON
        fields = json.loads(value)
        if isinstance(fields, dict):
            return {**recipe_value, **fields}
    return value
