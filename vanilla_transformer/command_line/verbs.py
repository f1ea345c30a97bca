"""The command `vanilla`: one dict of verbs, each a module whose `main` is imported when it is used.

vanilla --help
vanilla train demo
vanilla convert marian --model Helsinki-NLP/opus-mt-en-de --output_dir models/en-de

This module imports no library, so that the list of verbs and a misspelt verb take no time.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import NamedTuple

import vanilla_transformer
from vanilla_transformer.command_line import program
from vanilla_transformer.models.spelling import suggestion


class Verb(NamedTuple):
    """A subcommand."""

    group: str  # a key of GROUPS
    module: str  # inside vanilla_transformer; its `main(argv)` is the command
    help: str  # one line


# What a person wants to do.
GROUPS = {
    "train": "Train a model",
    "translate": "Translate",
    "measure": "Measure quality and speed",
    "publish": "Publish and convert",
    "understand": "Understand the model",
}
VERBS = {
    "demo": Verb("train", "scripts.demo", "train a small translator in minutes and translate your sentences"),
    "train": Verb("train", "training.train", "train or fine-tune a model from a recipe"),
    "plan": Verb("train", "training.plan", "what a recipe will cost: memory, FLOPs, hours; no GPU, no data"),
    "prepare": Verb("train", "training.prepare", "clean and tokenise a recipe's text before training"),
    "tokenizer": Verb("train", "scripts.train_tokenizer", "learn a subword vocabulary"),
    "phrases": Verb("train", "scripts.fill_templates", "make training pairs from phrases and templates"),
    "backtranslate": Verb("train", "scripts.backtranslate", "make training pairs from monolingual text"),
    "distill": Verb("train", "scripts.distill", "translate the training sources with a teacher"),
    "average": Verb("train", "scripts.average_checkpoints", "average the weights of checkpoints"),
    "translate": Verb("translate", "scripts.translate", "translate text, documents and large corpora"),
    "serve": Verb("translate", "scripts.serve", "serve models: a web page and an HTTP API"),
    "evaluate": Verb("measure", "scripts.evaluate_bleu", "score translations: BLEU, chrF and TER with signatures"),
    "score": Verb("measure", "scripts.score", "log-probability and perplexity of given translations"),
    "calibrate": Verb("measure", "scripts.calibrate", "fit a model's confidence to how often it is right"),
    "compare": Verb("measure", "scripts.compare_evaluations", "one table and picture of several evaluations"),
    "benchmark": Verb("measure", "scripts.benchmarks.benchmark", "measure speed and memory beside other systems"),
    "export": Verb("publish", "scripts.export_to_hub", "write, check and push a Hub repository or a Space"),
    "convert marian": Verb("publish", "scripts.convert_marian", "from MarianMT (OPUS-MT), or to it"),
    "convert fairseq": Verb("publish", "scripts.convert_fairseq", "from a fairseq checkpoint"),
    "convert ctranslate2": Verb("publish", "scripts.export_ctranslate2", "to CTranslate2, a fast C++ engine"),
    "convert onnx": Verb("publish", "scripts.export_onnx", "to ONNX graphs"),
    "explain": Verb("understand", "scripts.explain.explain", "measure and draw why it is built like this"),
    "attention": Verb("understand", "scripts.plot_attention", "draw attention, positions and the learning rate"),
    "iterations": Verb("understand", "scripts.show_iterations", "show how a mask-predict model writes a translation"),
    "variants": Verb("understand", "scripts.compare_variants", "train and compare variants of the architecture"),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the verb that the first word, or the first two, name."""
    words = list(sys.argv[1:] if argv is None else argv)
    match words:
        case [] | ["-h" | "--help" | "help", *_]:
            print(overview())
        case ["--version" | "-V" | "version", *_] | [_, "--version"]:
            print(f"vanilla-transformer {vanilla_transformer.__version__}")
        case [first, second, *rest] if f"{first} {second}" in VERBS:
            run(f"{first} {second}", rest)
        case [verb, *rest] if verb in VERBS:
            run(verb, rest)
        case [prefix, "-h" | "--help", *_] | [prefix] if _with_prefix(prefix):
            print(f"usage: vanilla {prefix} KIND [options]\n\n{_lines(_with_prefix(prefix))}")
        case _:
            sys.exit(_refusal(words))


def run(verb: str, words: Sequence[str]) -> None:
    """Runs a verb with its options."""
    program.NAME = f"vanilla {verb}"
    _set_environment()
    import_module(f"vanilla_transformer.{VERBS[verb].module}").main(list(words))


def _set_environment() -> None:
    """Sets what libraries read when they are imported, which none has been yet, unless the user has set it."""
    os.environ.setdefault("TQDM_DELAY", "2")  # short work has no progress bar
    # An OpenMP thread spins while it waits, and on a busy machine it takes a core from the others. 100 updates of the
    # demo with two threads take 9.1 s with the default of 300,000 turns, and 28.2 s beside a busy process; 9.7 and
    # 18.6 s with 1,000; 11.8 and 15.7 s with none (OMP_WAIT_POLICY=PASSIVE).
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def overview() -> str:
    """The text of `vanilla --help`: the verbs in groups."""
    parts = [
        f"{title}\n{_lines(name for name, verb in VERBS.items() if verb.group == group)}"
        for group, title in GROUPS.items()
    ]
    return "\n\n".join(
        [
            "usage: vanilla COMMAND [options]",
            *parts,
            "vanilla COMMAND --help shows the main options of a command, and --help all shows all of them.\n"
            "A first try: echo 'A dog runs.' | vanilla translate",
        ]
    )


def _lines(names: Iterable[str]) -> str:
    width = max(map(len, VERBS))
    return "\n".join(f"  {name:<{width}}  {VERBS[name].help}" for name in names)


def _with_prefix(word: str) -> list[str]:
    """The verbs of two words that begin with this one."""
    return [name for name in VERBS if name.startswith(f"{word} ")]


def _refusal(words: Sequence[str]) -> str:
    """One sentence for a command that does not exist."""
    if _with_prefix(words[0]):
        known, word = [name.split()[1] for name in _with_prefix(words[0])], words[1]
        return f"vanilla {words[0]}: {word!r} is not one of {', '.join(known)}{suggestion(word, known)}."
    hint = suggestion(words[0], {*VERBS, *(name.split()[0] for name in VERBS)})
    return f"vanilla: {words[0]!r} is not a command{hint}: see vanilla --help."
