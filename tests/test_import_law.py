"""The tree's one law: who may import whom. A model's files are exported flat, so they must not lean on the rest."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parent.parent
# What each file of the model may import from its own package, from the bottom up.
LAYERS = [
    "presets",
    "configuration_vanilla_transformer",
    "positions",
    "dropout",
    "loss",
    "modeling_vanilla_transformer",
    "beam_search",
    "decoding",
    "tokenization_vanilla_transformer",
    "quantization",
    "loading",
    "convert_marian",
    "export_ctranslate2",
    "folders",
    "ctranslate2_model",
    "translation",
]
OPTIONAL = {"export_ctranslate2": {"ctranslate2"}}  # imported where they are needed
NO_VERBS = ("__init__", "peers", "onnx_model")  # among the scripts: they serve the benchmarks
EXPORTED_NEED_ONLY = {"torch", "transformers", "huggingface_hub", "safetensors", "tokenizers"}


def imported_modules(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add("." * node.level + (node.module or ""))
    return modules


@pytest.mark.parametrize("name", LAYERS)
def test_a_file_of_the_model_imports_only_those_below_it(name):
    modules = imported_modules(ROOT / "vanilla_transformer" / f"{name}.py")
    allowed = {f".{below}" for below in LAYERS[: LAYERS.index(name)]}
    assert {module for module in modules if module.startswith(".")} <= allowed
    outside = {module.split(".")[0] for module in modules if not module.startswith(".")}
    assert outside - set(sys.stdlib_module_names) <= EXPORTED_NEED_ONLY | OPTIONAL.get(name, set())


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("vanilla_transformer", ("vanilla_transformer.training", "vanilla_transformer.scripts")),
        ("training", ("vanilla_transformer.scripts",)),
    ],
)
def test_a_folder_never_imports_from_those_above_it(folder, forbidden):
    files = sorted((ROOT / folder).glob("*.py"))
    assert files
    for path in files:
        assert not [module for module in imported_modules(path) if module.startswith(forbidden)], path.name


def test_importing_the_package_adds_nothing_to_what_transformers_itself_loads():
    code = """
import sys
from transformers import AutoModelForSeq2SeqLM, GenerationMixin, PreTrainedModel
before = set(sys.modules)
import vanilla_transformer
print(*{name.split(".")[0] for name in set(sys.modules) - before})
"""
    added = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert set(added.stdout.split()) - set(sys.stdlib_module_names) <= {
        "vanilla_transformer",
        "transformers",
        "tokenizers",
        "sentencepiece",  # which transformers loads where it is installed
    }


def test_a_command_that_is_asked_for_its_options_loads_no_model():
    """torch alone takes seconds. The trainer's own options are defined beside it, and have to wait for it."""
    names = sorted(path.stem for path in (ROOT / "scripts").glob("*.py") if path.stem not in NO_VERBS)
    code = f"""
import sys
from importlib import import_module
sys.argv = ["vanilla-command", "--help"]
for name in {names!r}:
    try:
        import_module(f"vanilla_transformer.scripts.{{name}}").main()
    except SystemExit as end:
        assert end.code == 0, name
print()
print("torch" in sys.modules)
"""
    answered = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert answered.stdout.count("usage: ") == len(names)
    assert answered.stdout.splitlines()[-1] == "False"


def test_names_of_the_package_are_there_however_it_was_started():
    code = """
import sys
sys.argv = ["vanilla-command", "--help"]
import vanilla_transformer
assert {"Translator", "VanillaTransformerConfig"} <= set(dir(vanilla_transformer))
for name in vanilla_transformer.__all__:
    getattr(vanilla_transformer, name)
try:
    vanilla_transformer.Translater
except AttributeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert "has no attribute 'Translater'" in done.stdout


def test_another_programs_options_are_none_of_ours():
    code = """
import sys
sys.argv = ["serve.py", "-h", "0.0.0.0"]
import vanilla_transformer
from transformers import AutoConfig
print(AutoConfig.for_model("vanilla_transformer").model_type, callable(vanilla_transformer.beam_search))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["vanilla_transformer", "True"]
