"""The keys of a recipe, as dataclasses for `HfArgumentParser`."""

import json
import os
import re
import sys
from argparse import Action, ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

import yaml
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.hf_argparser import HfArgumentParser, string_to_bool

from vanilla_transformer.decoding_options import require_decoding


def key(default, help: str):
    """A field with its help text, which is also its comment in `--help`."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass
class CorpusArguments:
    """Where parallel text comes from, and what is left out of its training part.

    Either `dataset` or `*_files` is given. Direction is just `source_lang` and `target_lang`: swap them to translate
    the other way.
    """

    source_lang: str = key("en", "Language translated from, as the corpus names it, for example en.")
    target_lang: str = key("de", "Language translated to, as the corpus names it, for example de.")

    dataset: str | None = key(
        None,
        "demo for the built-in corpus, a dataset of the Hub such as wmt/wmt14 or bentrevett/multi30k, or a local "
        "folder in the Hub's layout.",
    )
    dataset_config: str | None = key(
        None, "Configuration of that dataset, for example de-en. Found by itself where its name is the language pair."
    )
    train_split: str = key("train", "Split of the dataset to train on; slices such as train[:10000] work.")
    validation_split: str = key("validation", "Split of the dataset to validate on.")
    test_split: str = key("test", "Split of the dataset to test on.")

    train_files: list[str] = key(
        [],
        "Files to train on: a prefix such as data/train for data/train.en + data/train.de, the two files themselves, "
        "or .tsv, .csv, .jsonl and .parquet tables; each may be gzipped (.gz) and named with * and ?.",
    )
    validation_files: list[str] = key([], "Files to validate on, in the same forms.")
    test_files: list[str] = key([], "Files to test on, in the same forms.")
    columns: list[str] = key(
        [], "Names of the columns of .tsv and .csv files that have no header line, for example: en de."
    )

    streaming: bool = key(False, "Read the corpus as it is needed instead of preparing it on disk first.")
    num_proc: int | None = key(None, "Processes for cleaning and tokenising; one by default.")

    drop_empty: bool = key(True, "Leave out training pairs with an empty side.")
    drop_identical: bool = key(False, "Leave out training pairs whose two sides are the same.")
    drop_duplicates: bool = key(False, "Leave out training pairs that came before.")
    max_words: int | None = key(None, "Leave out training pairs with more words (by white space) on a side.")
    max_ratio: float | None = key(
        None, "Leave out training pairs of which one side has more than this many times the other's words."
    )

    def files(self, split: str) -> list[str]:
        return getattr(self, f"{split}_files")

    def __post_init__(self):
        for name in ("source_lang", "target_lang"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name}={getattr(self, name)!r} is not text: in YAML, put it in quotes.")
        for name in ("train_files", "validation_files", "test_files", "columns"):
            if isinstance(getattr(self, name), str):  # a recipe may name one file without brackets
                setattr(self, name, [getattr(self, name)])
        given = [split for split in ("train", "validation", "test") if self.files(split)]
        if self.dataset and given:
            raise ValueError(f"Both dataset={self.dataset!r} and {given[0]}_files are given: keep one of them.")
        if not self.dataset and not given:
            raise ValueError(
                "No corpus is given: set dataset (demo, a name of the Hub or a folder) or train_files, "
                "validation_files and test_files."
            )
        if self.source_lang == self.target_lang:
            raise ValueError(f"source_lang and target_lang are both {self.source_lang!r}: give two languages.")
        for name in ("max_words", "max_ratio", "num_proc"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1, or left out.")


@dataclass
class VocabularyArguments:
    """What vocabulary to learn."""

    vocab_size: int = key(37000, "Pieces in the vocabulary, the 256 bytes and four special tokens included.")
    algorithm: Literal["bpe", "wordpiece", "unigram"] = key("bpe", "How pieces are chosen.")
    separate: bool = key(
        False, "Learn two vocabularies: the source's in the folder itself, the target's in its subfolder `target`."
    )
    normalization: Literal["nfc", "nfkc", "none"] = key("nfc", "Unicode form of all text.")
    lowercase: bool = key(False, "Lower-case all text, which can't be undone.")
    min_frequency: int = key(2, "How often two pieces must meet to be joined (bpe and wordpiece).")
    vocabulary_pairs: int | None = key(None, "Learn from about the first so many pairs only (whole thousands).")

    def __post_init__(self):
        for name in ("vocabulary_pairs", "min_frequency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")


@dataclass
class TokenizerArguments(VocabularyArguments):
    """What vocabulary to learn, and where to put it."""

    output_dir: str = key("tokenizer", "Folder for the tokenizer, as `AutoTokenizer.from_pretrained` reads it.")
    overwrite: bool = key(False, "Replace a tokenizer that is already there.")


@dataclass
class ModelArguments:
    """Which model to train, and on whose pieces."""

    preset: str = key("base", "A model of the paper by name: base, big, a row of Table 3 such as C-N4, or tiny.")
    model_config: dict | str | None = key(
        None, 'Fields of the configuration to set on top of the preset, for example {"dropout": 0.3}.'
    )
    model_name_or_path: str | None = key(None, "A trained model to go on from, in place of a preset.")
    tokenizer: str | None = key(
        None, "A tokenizer that is there already (folder or Hub); by default one is learned from the training text."
    )
    num_beams: int | None = key(
        None, "Beam that the finished model decodes with; by default its own, or the paper's 4."
    )
    length_penalty: float | None = key(None, "Alpha of its length penalty; by default its own, or the paper's 0.6.")

    def __post_init__(self):
        if isinstance(self.model_config, str):
            try:
                self.model_config = json.loads(self.model_config)
            except json.JSONDecodeError as error:
                raise ValueError(f"model_config={self.model_config!r} is not valid JSON ({error}).") from error
        if not isinstance(self.model_config, dict | None):
            raise ValueError(f'model_config={self.model_config!r} must name fields, for example {{"dropout": 0.3}}.')
        require_decoding(self.num_beams, self.length_penalty)


@dataclass
class DecodingArguments:
    """How a model translates: by default as its own settings say, and where they are silent as in the paper."""

    num_beams: int | None = key(None, "Beam of the search, 1 for greedy; by default the model's own, else 4.")
    length_penalty: float | None = key(
        None, "Alpha of the length penalty, more makes longer; by default the model's own, else 0.6."
    )
    penalty: Literal["gnmt", "length"] = key("gnmt", "gnmt: ((5 + length) / 6)^alpha; length: length^alpha.")
    max_extra_tokens: int = key(50, "A translation has at most so many tokens more than its source.")

    def __post_init__(self):
        require_decoding(self.num_beams, self.length_penalty, self.max_extra_tokens)


@dataclass
class LoadingArguments:
    """How a model is loaded to translate: options of `Translator.from_pretrained`."""

    backend: Literal["torch", "ctranslate2"] = key(
        "torch", "What decodes; ctranslate2 is faster, and keeps its converted model beside the other."
    )
    quantization: str = key(
        "float32",
        "int8 for weights of 8 bits: faster in ctranslate2 and, from the base model on, in torch. The former also has "
        "int16, float16, bfloat16, int8_float32, int8_float16 and int8_bfloat16.",
    )
    max_tokens: int = key(2048, "Source tokens in a batch, padding included.")
    device: str | None = key(None, "Where to run, for example cpu or cuda:1; a GPU if there is one.")
    revision: str = key("main", "Branch, tag or commit of a model on the Hub.")
    trust_remote_code: bool = key(False, "Run the model code that comes with a model of the Hub.")


class _HelpFormatter(ArgumentDefaultsHelpFormatter, RawDescriptionHelpFormatter):
    """Defaults beside each option, the script's docstring as it was written."""


class _Parser(HfArgumentParser):
    """Where an option or a key has a wrong value, says that and not how all the others are written."""

    def error(self, message: str):
        raise ValueError(f"{message} (see --help).")


def parse_arguments(types: Sequence[type], description: str, argv: Sequence[str] | None = None) -> tuple:
    """One instance of each dataclass from the command line, the first word of which may be a recipe in YAML.

    The recipe's keys are those of the command line, and the command line wins. A key that nothing reads is refused.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = _Parser(types, description=description, formatter_class=_HelpFormatter)
    known = {action.dest for action in parser._actions} - {"help"}
    recipe = {}
    if argv and not argv[0].startswith("-"):
        recipe = _read_recipe(argv.pop(0), known)
        actions = {action.dest: action for action in reversed(parser._actions)}  # not those of the form --no_...
        parser.set_defaults(**{name: _as_typed(name, value, actions[name]) for name, value in recipe.items()})
    namespace, unread = parser.parse_known_args(argv)
    for word in unread:
        raise ValueError(f"{word!r} is none of the options.{_hint(word.lstrip('-').replace('-', '_'), known)}")
    options = vars(namespace)
    return parser.parse_dict({name: _merged(recipe.get(name), value) for name, value in options.items()})


def _as_typed(name: str, value, action: Action):
    """A value of the recipe as the command line would have it, whose own checks it then meets."""
    if value is None and action.default is not None:
        raise ValueError(f"The recipe has a key {name!r} without a value: give it one, or leave it out.")
    if isinstance(value, list | dict) and (action.type in (int, float, string_to_bool) or action.choices):
        raise ValueError(f"The recipe has {name}={value!r}, but {name} takes one value.")
    if isinstance(value, str) and action.nargs == "+":
        return [value]
    is_number = isinstance(value, int | float) and not (isinstance(value, bool) and action.type is str)
    return str(value) if is_number else value


def _merged(of_recipe, value):
    """`--model_config '{"dropout": 0.3}'` changes that field of the recipe's dict and leaves the others."""
    if not isinstance(of_recipe, dict) or not isinstance(value, str):
        return value
    with suppress(json.JSONDecodeError):  # the dataclass will say what is wrong with it
        fields = json.loads(value)
        if isinstance(fields, dict):
            return {**of_recipe, **fields}
    return value


class _Loader(yaml.SafeLoader):
    """Numbers such as 1e-5, which need a point in YAML 1.1 and else are text there."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _read_recipe(path: str, known: set[str]) -> dict:
    if not Path(path).is_file():
        raise ValueError(f"There is no recipe {path!r}. Give the path of a YAML file, or only options (see --help).")
    try:
        recipe = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader) or {}
    except yaml.YAMLError as error:
        raise ValueError(f"The recipe {path} is not valid YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise ValueError(
            f"The recipe {path} holds a {type(recipe).__name__}: it must be lines of the form `key: value`."
        )
    for name in recipe:
        if name not in known:
            raise ValueError(f"The recipe {path} has a key {name!r} that nothing reads.{_hint(str(name), known)}")
    return recipe


def _hint(name: str, known: set[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else " See --help for all there are."


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Ends a script with one sentence where the user can mend what is wrong; `VANILLA_TRACEBACK=1` shows the rest."""
    try:
        yield
    except BrokenPipeError:  # the reader of our output, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, ImportError, StrictDataclassError, SafetensorError) as error:
        if os.environ.get("VANILLA_TRACEBACK"):
            raise
        # A strict dataclass wraps the sentence that matters.
        sentence = error.__cause__ if isinstance(error, StrictDataclassError) else error
        sys.exit(f"{Path(sys.argv[0]).name}: {sentence}")
    except KeyboardInterrupt:
        sys.exit(130)
