"""The keys of a recipe, as dataclasses for `HfArgumentParser`."""

import json
import os
import re
import signal
import sys
import threading
from argparse import Action
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, Literal, NoReturn

import yaml
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.hf_argparser import HfArgumentParser, string_to_bool

from vanilla_transformer.beam_search import DEFAULT_EXTRA_TOKENS
from vanilla_transformer.chunks import MAX_SOURCE_TOKENS
from vanilla_transformer.decoding_options import require_decoding
from vanilla_transformer.languages import Languages
from vanilla_transformer.spelling import suggestion
from vanilla_transformer.training.help_text import HelpFormatter, arrange
from vanilla_transformer.training.recipe_files import find_recipe


def key(default: Any, help: str) -> Any:
    """Makes a dataclass field with a default and a text for `--help`."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass
class CleaningArguments:
    """Which pairs are left out."""

    num_proc: int | None = key(None, "Processes for cleaning and tokenising; one by default.")

    drop_empty: bool = key(True, "Leave out training pairs with an empty side.")
    drop_identical: bool = key(False, "Leave out training pairs with identical sides.")
    drop_duplicates: bool = key(False, "Leave out repeated training pairs.")
    max_words: int | None = key(None, "Leave out training pairs with more words (by white space) on a side.")
    max_ratio: float | None = key(
        None, "Leave out training pairs if one side has more than this many times the words of the other."
    )

    def __post_init__(self) -> None:
        for name in ("max_words", "max_ratio", "num_proc"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1, or left out.")


@dataclass
class CorpusArguments(CleaningArguments):
    """Where the parallel text is, and which training pairs are left out.

    Give either `dataset` or `*_files`. To translate in the other direction, swap `source_lang` and `target_lang`.
    """

    help_group: ClassVar[str] = "text"

    source_lang: str | None = key(
        None, "Source language, as files and columns are named, for example en; by default that of the model."
    )
    target_lang: str | None = key(None, "Target language, for example de; by default that of the model.")

    dataset: str | None = key(
        None,
        "demo for the built-in corpus, a dataset of the Hub such as wmt/wmt14 or bentrevett/multi30k, or a local "
        "folder in the Hub's layout.",
    )
    dataset_config: str | None = key(
        None, "Configuration of that dataset, for example de-en. Not needed if its name is the language pair."
    )
    train_split: str = key("train", "Split of the dataset to train on; slices such as train[:10000] work.")
    validation_split: str = key("validation", "Split of the dataset to validate on.")
    test_split: str = key("test", "Split of the dataset to test on.")

    train_files: list[str] = key(
        [],
        "Files to train on: a prefix such as data/train for data/train.en + data/train.de, the two files themselves, "
        "or .tsv, .csv, .jsonl and .parquet tables. Files may be gzipped (.gz), and * and ? match several.",
    )
    train_weights: list[float] = key(
        [],
        "How often each entry of train_files counts, for example 3 1: whole copies, and a random share of one more "
        "for a fraction. By default each counts once.",
    )
    validation_files: list[str] = key([], "Files to validate on, in the same formats.")
    test_files: list[str] = key([], "Files to test on, in the same formats.")
    test_sets: list[str] = key(
        [], "Further test sets, each NAME=FILES: news=data/news for data/news.en + data/news.de, for example."
    )
    references: list[str] = key(
        [], "Further references, each NAME=FILE with a sentence on each line; NAME is test for --test_files."
    )
    columns: list[str] = key([], "Column names for .tsv and .csv files that have no header line, for example: en de.")

    streaming: bool = key(False, "Read the corpus while training instead of preparing it on disk first.")

    @property
    def languages(self) -> Languages:
        """The languages that are given."""
        return Languages(self.source_lang, self.target_lang)

    def with_languages(self, languages: tuple[str | None, str | None]) -> "CorpusArguments":
        """Returns the same arguments with other languages."""
        return replace(self, source_lang=languages[0], target_lang=languages[1])

    def files(self, split: str) -> list[str]:
        """Returns the files of a split or of a further test set."""
        further = self.further_test_sets
        return further[split] if split in further else getattr(self, f"{split}_files")

    @property
    def further_test_sets(self) -> dict[str, list[str]]:
        """The files of each set in `test_sets`."""
        return _named("test_sets", self.test_sets)

    @property
    def further_references(self) -> dict[str, list[str]]:
        """The files of further references for each test set."""
        return _named("references", self.references)

    def __post_init__(self) -> None:
        for name in ("source_lang", "target_lang"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name}={getattr(self, name)!r} is not text: in YAML, put it in quotes.")
        for name in ("train_files", "validation_files", "test_files", "columns", "test_sets", "references"):
            if isinstance(getattr(self, name), str):  # a recipe may give one file without brackets
                setattr(self, name, [getattr(self, name)])
        splits_in_files = [split for split in ("train", "validation", "test") if self.files(split)]
        if self.dataset and splits_in_files:
            raise ValueError(
                f"Both dataset={self.dataset!r} and {splits_in_files[0]}_files are given: leave out one of them. "
                "(Files on the command line replace the dataset of a recipe.)"
            )
        for name in self.further_test_sets:
            if name in ("train", "validation", "test") or not re.fullmatch(r"[\w.-]+", name):
                raise ValueError(f"test_sets has the name {name!r}: choose another, of letters and digits.")
        for name in self.further_references:
            if name != "test" and name not in self.further_test_sets:
                raise ValueError(f"references are given for {name!r}, which is not a test set: name one of test_sets.")
        if not self.dataset and not splits_in_files and not self.test_sets:
            raise ValueError(
                "No corpus is given: set dataset (demo, a name on the Hub or a folder) or train_files, "
                "validation_files and test_files."
            )
        if self.source_lang is not None and self.source_lang == self.target_lang:
            raise ValueError(f"source_lang and target_lang are both {self.source_lang!r}: give two languages.")
        self._require_weights()
        super().__post_init__()

    def _require_weights(self) -> None:
        if not self.train_weights:
            return
        if len(self.train_weights) != len(self.train_files):
            raise ValueError(
                f"train_weights has {len(self.train_weights)} numbers, but train_files has {len(self.train_files)} "
                "entries: give one number for each entry."
            )
        if min(self.train_weights) <= 0:
            raise ValueError(f"train_weights={self.train_weights} must be above 0: leave out files that do not count.")
        if self.streaming:
            raise ValueError("train_weights needs the corpus on disk: set streaming to false, or leave it out.")


def _named(option: str, words: list[str]) -> dict[str, list[str]]:
    """The files by name in words of the form NAME=FILE."""
    named: dict[str, list[str]] = {}
    for word in words:
        name, equals, file = word.partition("=")
        if not (name and equals and file):
            raise ValueError(f"{option} has {word!r}: write NAME=FILE, for example news=data/news.")
        named.setdefault(name, []).append(file)
    return named


@dataclass
class VocabularyArguments:
    """How the subword vocabulary is learned."""

    help_group: ClassVar[str] = "vocabulary"

    vocab_size: int = key(37000, "Size of the vocabulary, including 256 bytes and four special tokens.")
    algorithm: Literal["bpe", "wordpiece", "unigram"] = key("bpe", "Algorithm that learns the subwords.")
    separate: bool = key(
        False,
        "Learn separate vocabularies: the source tokenizer is in the folder, the target tokenizer in its subfolder "
        "`target`.",
    )
    normalization: Literal["nfc", "nfkc", "none"] = key("nfc", "Unicode normalisation of all text.")
    lowercase: bool = key(False, "Lower-case all text. This cannot be undone.")
    min_frequency: int = key(2, "How often two subwords must be adjacent to be merged (bpe and wordpiece).")
    vocabulary_pairs: int | None = key(
        None, "Learn from the first pairs only, about this many (rounded up to thousands)."
    )

    def __post_init__(self) -> None:
        for name in ("vocabulary_pairs", "min_frequency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")


@dataclass
class TokenizerArguments(VocabularyArguments):
    """How the vocabulary is learned, and where it is saved."""

    output_dir: str = key("tokenizer", "Folder for the tokenizer, for `AutoTokenizer.from_pretrained`.")
    overwrite: bool = key(False, "Replace an existing tokenizer.")


@dataclass
class ModelArguments:
    """Which model is trained, and its tokenizer."""

    help_group: ClassVar[str] = "model"

    model_type: str = key(
        "vanilla_transformer",
        "Architecture of a new model: vanilla_transformer, rnn_search (the recurrent model before it), mask_predict "
        "(writes all tokens at once), or any "
        "encoder-decoder of transformers such as marian or t5.",
    )
    preset: str = key(
        "base",
        "A vanilla_transformer of the paper by name: base, big, a row of Table 3 such as C-N4, or tiny.",
    )
    model_config: dict | str | None = key(
        None, 'Config fields of the model, set on top of the preset, for example {"dropout": 0.3}.'
    )
    model_name_or_path: str | None = key(None, "A trained model to continue from, instead of a new one.")
    initialize_from: str | None = key(
        None,
        "A trained vanilla_transformer whose weights and vocabulary a new model of another type starts from; for "
        "example a mask_predict model from its teacher.",
    )
    tokenizer: str | None = key(
        None, "An existing tokenizer (folder or Hub); by default one is learned from the training text."
    )
    num_beams: int | None = key(
        None, "Beam size in the finished model's generation config; by default unchanged, and the paper's 4 is used."
    )
    length_penalty: float | None = key(
        None, "Alpha of the length penalty, stored in the same way; by default unchanged, and the paper's 0.6 is used."
    )
    iterations: int | None = key(None, "For mask_predict: passes of the decoder, stored in the same way; default 10.")
    length_candidates: int | None = key(
        None, "For mask_predict: lengths tried for each sentence, stored in the same way; default 5."
    )
    length_alpha: float | None = key(
        None,
        "For mask_predict: lengths are ranked by log-probability / length^length_alpha, more for longer output; "
        "stored in the same way; default 1.",
    )

    def __post_init__(self) -> None:
        if isinstance(self.model_config, str):
            try:
                self.model_config = json.loads(self.model_config)
            except json.JSONDecodeError as error:
                raise ValueError(f"model_config={self.model_config!r} is not valid JSON ({error}).") from error
        if not isinstance(self.model_config, dict | None):
            raise ValueError(
                f'model_config={self.model_config!r} must map fields to values, for example {{"dropout": 0.3}}.'
            )
        require_decoding(**self.decoding)
        if self.initialize_from and self.model_name_or_path:
            raise ValueError(
                f"initialize_from={self.initialize_from!r} is for a new model, but model_name_or_path="
                f"{self.model_name_or_path!r} continues a trained one: give one of them."
            )

    @property
    def decoding(self) -> dict[str, Any]:
        """The decoding options that are given."""
        names = ("num_beams", "length_penalty", "iterations", "length_candidates", "length_alpha")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def config_fields(self) -> dict[str, Any]:
        """The fields in `model_config`."""
        return self.model_config if isinstance(self.model_config, dict) else {}


@dataclass
class DecodingArguments:
    """How a model translates: by default as its generation config says, else as in the paper."""

    help_group: ClassVar[str] = "decoding"

    num_beams: int | None = key(None, "Beam size, 1 for greedy search; by default the model's, else 4.")
    length_penalty: float | None = key(
        None, "Alpha of the length penalty, higher for longer output; by default the model's, else 0.6."
    )
    penalty: Literal["gnmt", "length"] | None = key(
        None, "gnmt: ((5 + length) / 6)^alpha, the default; length: length^alpha."
    )
    max_extra_tokens: int = key(
        DEFAULT_EXTRA_TOKENS, "Maximum number of tokens that a translation has more than its source."
    )

    iterations: int | None = key(
        None, "For mask_predict models: passes of the decoder; by default the model's, else 10."
    )
    length_candidates: int | None = key(
        None, "For mask_predict models: lengths tried for each sentence; by default the model's, else 5."
    )
    length_ratio: float | None = key(
        None, "For mask_predict models: factor on the predicted length, 0.8 for terser translations; default 1."
    )
    length_alpha: float | None = key(
        None,
        "For mask_predict models: lengths are ranked by log-probability / length^length_alpha, more for longer "
        "output; by default the model's, else 1.",
    )

    def __post_init__(self) -> None:
        checked = {name: value for name, value in vars(self).items() if name != "penalty"}
        require_decoding(**checked)


@dataclass
class LoadingArguments:
    """How a model is loaded to translate: options of `Translator.from_pretrained`."""

    help_group: ClassVar[str] = "loading"

    backend: Literal["torch", "ctranslate2", "onnx"] = key(
        "torch",
        "Engine that decodes; ctranslate2 is faster and keeps its converted model beside the original; onnx takes the "
        "output of vanilla-export-onnx.",
    )
    quantization: str = key(
        "float32",
        "int8 for 8-bit weights: faster in ctranslate2, and in torch for models of base size and larger. ctranslate2 "
        "also has int16, float16, bfloat16, int8_float32, int8_float16 and int8_bfloat16.",
    )
    max_tokens: int = key(2048, "Maximum source tokens in a batch, padding included.")
    max_source_tokens: int = key(
        MAX_SOURCE_TOKENS, "Longest source in tokens. A longer one is cut with a warning, or see --long_texts."
    )
    long_texts: Literal["cut", "chunk"] = key(
        "cut", "What is done with longer sources: cut them, or chunk them at sentence ends and join the translations."
    )
    device: str | None = key(None, "Device, for example cpu or cuda:1; by default a GPU if there is one.")
    revision: str = key("main", "Branch, tag or commit of a model on the Hub.")
    trust_remote_code: bool = key(False, "Run the model code in a model's repository on the Hub.")


class _Parser(HfArgumentParser):
    """Raises a ValueError with one sentence instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help).")


def parse_arguments(types: Sequence[type], description: str, argv: Sequence[str] | None = None) -> tuple:
    """Returns one instance of each dataclass from the command line. Its first word may be a recipe.

    A recipe is a YAML file, or the name of one that comes with the package. It has the same keys as the command line,
    and the command line wins. Unknown keys are refused.

    Args:
        types: The dataclasses.
        description: The text above the options in `--help`.
        argv: The words of the command line; those of this process by default.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    usage = "%(prog)s [RECIPE] [options]"
    parser = _Parser(types, description=description, formatter_class=HelpFormatter, usage=usage)
    known = {action.dest for action in parser._actions} - {"help"}
    arrange(parser, types)
    recipe = {}
    if words and not words[0].startswith("-"):
        recipe = _read_recipe(find_recipe(words.pop(0)), known)
        _drop_replaced(recipe, words)
        actions = {action.dest: action for action in reversed(parser._actions)}  # reversed: not the form --no_...
        parser.set_defaults(**{name: _as_typed(name, value, actions[name]) for name, value in recipe.items()})
    for name in _given(words) - known:
        if name in ADVICE:
            raise ValueError(f"'--{name}' is not an option: {ADVICE[name]}.")
    namespace, unknown = parser.parse_known_args(words)
    for word in unknown:
        hint = suggestion(word.lstrip("-").replace("-", "_"), known)
        raise ValueError(f"{word!r} is not an option{hint}: see --help for all options.")
    options = vars(namespace)
    return parser.parse_dict({name: _merged(recipe.get(name), value) for name, value in options.items()})


# Names that other programs have for what is an option of another kind here.
ADVICE = {
    "batch_size": "batch size is set in tokens: --max_tokens",
    "train_batch_size": "batch size is set in tokens: --max_tokens",
    "epochs": "updates are counted: --max_steps, or --max_steps -1 --num_train_epochs for epochs",
    "lr": "the learning rate is --learning_rate",
    "beam_size": "the beam size is --num_beams",
    "src_lang": "the languages are --source_lang and --target_lang",
    "tgt_lang": "the languages are --source_lang and --target_lang",
}


def _given(words: Sequence[str]) -> set[str]:
    """The names of the options on a command line."""
    return {word[2:].split("=")[0].replace("-", "_") for word in words if word.startswith("--")}


def _drop_replaced(recipe: dict[str, Any], words: Sequence[str]) -> None:
    """Drops the recipe's dataset if the command line gives files, and the recipe's files if it gives a dataset."""
    given = _given(words)
    files = {"train_files", "validation_files", "test_files"}
    if given & files and "dataset" not in given:
        recipe.pop("dataset", None)
    if "dataset" in given and not given & files:
        for name in files:
            recipe.pop(name, None)


def _as_typed(name: str, value: Any, action: Action) -> Any:
    """Converts a recipe's value to what the command line would give, so that the same checks apply."""
    if value is None and action.default is not None:
        raise ValueError(f"The recipe has a key {name!r} without a value: give it one, or leave it out.")
    takes_one = action.nargs != "+" and (action.type in (int, float, string_to_bool) or action.choices)
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


class _Loader(yaml.SafeLoader):
    """Reads 1e-5 as a number. YAML 1.1 requires a point in it and else reads text."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _read_recipe(path: Path, known: set[str]) -> dict[str, Any]:
    try:
        recipe = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"The recipe {path} is not valid YAML: {error}") from error
    if not isinstance(recipe, dict):
        raise ValueError(
            f"The recipe {path} holds a {type(recipe).__name__}: it must be lines of the form `key: value`."
        )
    for name in recipe:
        if name not in known:
            hint = suggestion(str(name), known)
            raise ValueError(f"The recipe {path} has an unknown key {name!r}{hint}: see --help for all keys.")
    return recipe


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """Ends a script with one sentence for errors that the user can fix; `VANILLA_TRACEBACK=1` shows the traceback.

    SIGTERM ends it as Ctrl-C does.
    """
    if sys.stderr is None:  # closed before Python started; libraries write to it unasked
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        with _sigterm_as_ctrl_c():
            yield
            if sys.stdout is not None:
                sys.stdout.flush()  # here, an error is caught
    except BrokenPipeError:  # the reader of our output has ended, `head` for instance
        _discard_output()
    except Exception as error:
        if os.environ.get("VANILLA_TRACEBACK") or not _has_sentence(error):
            raise
        _discard_output()
        # A strict dataclass wraps the error that has the sentence.
        sentence = error.__cause__ if isinstance(error, StrictDataclassError) else error
        sys.exit(f"{Path(sys.argv[0]).name}: {sentence}")
    except KeyboardInterrupt as interruption:
        sys.exit(128 + (signal.SIGTERM if isinstance(interruption, Terminated) else signal.SIGINT))


def _has_sentence(error: Exception) -> bool:
    """Whether a user can cause an error. `tokenizers` has only `Exception` itself for a full disk, for instance."""
    kinds = (ValueError, OSError, ImportError, StrictDataclassError, SafetensorError)
    return isinstance(error, kinds) or type(error) is Exception


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _discard_output() -> None:
    """Gives up output that can't be written. Python would try again at its end, and print a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
