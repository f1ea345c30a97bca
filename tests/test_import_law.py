"""The tree's one law: which file may import which. Every file belongs to a layer."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from vanilla_transformer.hub import EXPORTED_MODULES


ROOT = Path(__file__).parent.parent
# The package from the bottom up: a module may import those above it in this list.
PACKAGE = [
    "presets",
    "spelling",
    "sentences",
    "positions",
    "scores",
    "full_attention",
    "window_attention",
    "longformer_attention",
    "lsh_attention",
    "patterns",
    "translation_config",
    "configuration_vanilla_transformer",
    "reversible",
    "configuration_rnn_search",
    "dropout",
    "loss",
    "beam_search",
    "decoder_step",
    "lexical_constraints",
    "glossary",
    "translation_head",
    "modeling_vanilla_transformer",
    "modeling_rnn_search",
    "configuration_mask_predict",
    "mask_predict",
    "modeling_mask_predict",
    "searches",
    "decoding_options",
    "file_locks",
    "atomic_writes",
    "leases",
    "loading",
    "shards",
    "tokenization_vanilla_transformer",
    "languages",
    "weight_sharing",
    "quantization",
    "converters/__init__",
    "converters/vanilla",
    "converters/marian",
    "converters/fairseq",
    "converters/ctranslate2",
    "converters/onnx",
    "backends/protocol",
    "backends/torch",
    "backends/ensemble",
    "backends/ctranslate2",
    "backends/onnx",
    "backends/__init__",
    "chunks",
    "translation",
    "translation_pipeline",
    "reranking",
    "hub",
    "registration",
    "serving/__init__",
    "serving/errors",
    "serving/limits",
    "serving/words",
    "serving/documents",
    "serving/markup",
    "serving/batching",
    "serving/metrics",
    "serving/models",
    "serving/requests",
    "serving/api",
    "serving/page",
    "serving/server",
    "serving/space",
    "__init__",
]
# Everything in training/ may import the package and what is in training/; scripts/ may import everything.
TRAINING_FOLDERS = {"training", "training/demo"}
SCRIPT_FOLDERS = {"scripts", "scripts/benchmarks", "scripts/explain"}
HUB_LIBRARIES = {"torch", "transformers", "huggingface_hub", "safetensors", "tokenizers"}
# The extra `serve`. Nothing outside of serving/ imports its modules, so they import it at the top.
SERVE = {"fastapi", "gradio", "h11", "prometheus_client", "pydantic", "starlette", "uvicorn"}
# Optional dependencies, imported only where they are needed.
OPTIONAL = {
    "converters/ctranslate2": {"ctranslate2"},
    "backends/ctranslate2": {"ctranslate2"},
    "converters/onnx": {"onnxruntime"},
    "sentences": {"sentencex"},
    **{f"serving/{name}": SERVE for name in ("errors", "metrics", "requests", "api", "page", "server")},
}


def imports(path: Path) -> set[str]:
    """The modules that a file imports when it runs, by absolute names. Imports for type checkers do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            folder = path.relative_to(ROOT).parent.parts
            base = ".".join(folder[: len(folder) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from . import name` may name a module.
            names |= {f"{module}.{alias.name}" if is_module(module, alias.name) else module for alias in node.names}
    return names


def is_module(package: str, name: str) -> bool:
    folder = ROOT.joinpath(*package.split("."))
    return package.startswith("vanilla_transformer") and (folder / f"{name}.py").is_file()


def in_package(names: set[str]) -> set[str]:
    """The names of the package's modules among imports, as `PACKAGE` has them."""
    own = {name.removeprefix("vanilla_transformer").removeprefix(".") for name in names if is_own(name)}
    return {path_of(name) for name in own}


def is_own(name: str) -> bool:
    return name.split(".")[0] == "vanilla_transformer"


def path_of(name: str) -> str:
    folder = ROOT / "vanilla_transformer" / name.replace(".", "/")
    return f"{name.replace('.', '/')}/__init__".removeprefix("/") if folder.is_dir() else name.replace(".", "/")


def test_every_file_has_a_layer():
    files = {path.relative_to(ROOT / "vanilla_transformer").with_suffix("").as_posix() for path in python_files()}
    assert files == set(PACKAGE)
    for top, folders in (("training", TRAINING_FOLDERS), ("scripts", SCRIPT_FOLDERS)):
        found = {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / top).rglob("*.py")}
        assert found == folders


def python_files() -> list[Path]:
    return sorted((ROOT / "vanilla_transformer").rglob("*.py"))


@pytest.mark.parametrize("name", PACKAGE)
def test_a_module_of_the_package_imports_only_those_below_it(name):
    names = imports(ROOT / "vanilla_transformer" / f"{name}.py")
    assert in_package(names) <= set(PACKAGE[: PACKAGE.index(name)])
    outside = {module.split(".")[0] for module in names if not is_own(module)}
    assert outside - set(sys.stdlib_module_names) <= HUB_LIBRARIES | OPTIONAL.get(name, set())


@pytest.mark.parametrize("name", EXPORTED_MODULES)
def test_exported_modules_import_only_each_other(name):
    path = ROOT / "vanilla_transformer" / f"{name}.py"
    assert in_package(imports(path)) <= set(EXPORTED_MODULES)


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("vanilla_transformer", ("vanilla_transformer.training", "vanilla_transformer.scripts")),
        ("training", ("vanilla_transformer.scripts",)),
    ],
)
def test_a_folder_never_imports_from_those_above_it(folder, forbidden):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        assert not [name for name in imports(path) if name.startswith(forbidden)], path.name


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
        "sentencepiece",  # which transformers loads if it is installed
    }


def test_the_package_ignores_the_command_line_and_modules_keep_their_names():
    code = """
import sys
sys.argv = ["serve.py", "-h", "0.0.0.0"]
import vanilla_transformer
import vanilla_transformer.beam_search
from transformers import AutoConfig
for name in vanilla_transformer.__all__:
    getattr(vanilla_transformer, name)
print(AutoConfig.for_model("vanilla_transformer").model_type, type(vanilla_transformer.beam_search).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["vanilla_transformer", "module"]


def test_no_module_shares_its_name_with_something_it_exports():
    """Else `import vanilla_transformer.beam_search` could give a function."""
    for path in python_files():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert path.stem not in names, path
