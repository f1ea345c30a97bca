"""The command `vanilla`: its list of verbs, misspelt verbs, and the name that usage and errors show."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from vanilla_transformer import __version__
from vanilla_transformer.command_line import program, verbs


@pytest.fixture(autouse=True)
def name(monkeypatch):
    """Restores the name of the program."""
    monkeypatch.setattr(program, "NAME", None)


@pytest.mark.parametrize("verb", verbs.VERBS.values(), ids=verbs.VERBS)
def test_every_verb_has_a_module_with_main_and_a_group(verb):
    assert verb.group in verbs.GROUPS
    assert find_spec(f"vanilla_transformer.{verb.module}")
    assert len(verb.help) < 70


def test_every_script_is_a_verb():
    folder = import_module("vanilla_transformer.scripts").__path__[0]
    scripts = {f"scripts.{path.stem}" for path in Path(folder).glob("[a-z]*.py")}
    assert scripts <= {verb.module for verb in verbs.VERBS.values()}


def test_help_lists_every_verb_and_version_is_the_package(capsys):
    for words in ([], ["--help"], ["-h"]):
        verbs.main(words)
        lines = capsys.readouterr().out.splitlines()
        assert all(any(line.startswith(f"  {name} ") for line in lines) for name in verbs.VERBS)
    for words in (["--version"], ["translate", "--version"]):
        verbs.main(words)
        assert capsys.readouterr().out == f"vanilla-transformer {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], r"'trian' is not a command \(did you mean 'train'\?\): see vanilla --help"),
        (["evaluate_bleu", "--model", "x"], r"did you mean 'evaluate'"),
        (["convert", "mariam", "--model", "x"], r"'mariam' is not one of marian, .* \(did you mean 'marian'\?\)"),
        (["zzz"], r"'zzz' is not a command: see"),
    ],
)
def test_a_misspelt_verb_gets_a_suggestion(words, message):
    with pytest.raises(SystemExit, match=message):
        verbs.main(words)


def test_a_word_with_several_kinds_lists_them(capsys):
    verbs.main(["convert"])
    assert "convert marian" in (listed := capsys.readouterr().out)
    verbs.main(["convert", "--help"])
    assert capsys.readouterr().out == listed


def test_usage_and_errors_name_the_verb(capsys):
    with pytest.raises(SystemExit):
        verbs.main(["convert", "onnx", "--help"])
    assert capsys.readouterr().out.startswith("usage: vanilla convert onnx [RECIPE] [options]")
    with pytest.raises(SystemExit, match=r"vanilla score: '--nothing' is not an option"):
        verbs.main(["score", "--nothing"])


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["trian"], ["convert"]])
def test_nothing_heavy_is_imported_before_a_verb_runs(words):
    code = f"""
import sys
from vanilla_transformer.command_line.verbs import main
try:
    main({words!r})
except SystemExit:
    pass
loaded = {{name.split(".")[0] for name in sys.modules}} - {{"vanilla_transformer"}}
print("loaded:", *loaded & {{"torch", "transformers", "tokenizers", "numpy", "datasets", "huggingface_hub", "yaml"}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "loaded:"


@pytest.mark.parametrize("given", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_threads_that_wait_spin_briefly_unless_the_user_decides(given):
    code = """
import os, sys
from vanilla_transformer.command_line import verbs
class Main:
    main = lambda words: print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
verbs.import_module = lambda name: Main
verbs.main(["train"])
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", *given)}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, **given}, capture_output=True, text=True, check=True
    )
    number = None if "OMP_WAIT_POLICY" in given else given.get("GOMP_SPINCOUNT", "1000")
    assert done.stdout == f"{number} False\n"


def test_short_work_has_no_bar():
    """transformers draws its bars with tqdm, which reads the environment when it is imported."""
    code = """
import os
from vanilla_transformer.command_line import verbs
class Main:
    def main(words):
        from transformers.utils import logging
        list(logging.tqdm(range(3), desc="Loading weights"))
verbs.import_module = lambda name: Main
verbs.main(["train"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "TQDM_DELAY"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "Loading weights" not in done.stderr


def test_python_m_is_the_same_command():
    command = [sys.executable, "-m", "vanilla_transformer", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().endswith(__version__)
