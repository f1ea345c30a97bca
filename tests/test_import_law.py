"""The tree's one law: which room may import which."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest


ROOT = Path(__file__).parent.parent
# The rooms of the package from the bottom up: a room may import itself and those above it in this list.
ROOMS = [
    "safe_files",
    "models",
    "cpu",
    "hub",
    "converters",
    "engines",
    "translation",
    "command_line",
    "bulk_translation",
    "serving",
]
HUB_LIBRARIES = {"numpy", "torch", "tqdm", "transformers", "huggingface_hub", "safetensors", "tokenizers"}
# Libraries that only some rooms may import.
LIBRARIES = {
    "safe_files": {"filelock", "pyarrow"},
    "hub": {"filelock", "peft", "yaml"},
    "converters": {"ctranslate2", "onnxruntime"},
    "engines": {"ctranslate2"},
    "translation": {"eld", "sentencex"},
    "command_line": {"yaml"},
    "bulk_translation": {"filelock", "pyarrow", "ray"},
    # The extra `serve`. Nothing outside of serving/ imports its modules, so they import it at the top.
    "serving": {"h11", "prometheus_client", "pydantic", "starlette", "turbohtml", "uvicorn", "yaml"},
}
FILES = sorted((ROOT / "vanilla_transformer").rglob("*.py"))


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
            names.add(".".join(part for part in (base, node.module) if part))
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT / "vanilla_transformer")))
def test_a_room_imports_only_those_below_it(path):
    names = imports(path)
    own = {tuple(name.split(".")[1:]) for name in names if name.split(".")[0] == "vanilla_transformer"}
    room = path.relative_to(ROOT / "vanilla_transformer").parts[0]
    entries = {"__init__.py": {"hub"}, "__main__.py": {"command_line"}}
    allowed = entries.get(room) or set(ROOMS[: ROOMS.index(room) + 1])
    assert {parts[0] for parts in own if parts} <= allowed
    outside = {name.split(".")[0] for name in names} - {"vanilla_transformer"} - set(sys.stdlib_module_names)
    assert outside <= HUB_LIBRARIES | LIBRARIES.get(room, set())


def test_what_a_saved_folder_carries_is_flat():
    """`save_pretrained` copies what `from .x import` names, in one folder: other spellings would be left out."""
    for path in (ROOT / "vanilla_transformer" / "models").rglob("*.py"):
        assert path.parent.name == "models"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1, path
                assert node.module, path
                assert "." not in node.module, path


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        ("vanilla_transformer", ("vanilla_transformer.training", "vanilla_transformer.scripts")),
        ("training", ("vanilla_transformer.scripts", "vanilla_transformer.serving")),
    ],
)
def test_a_folder_never_imports_from_those_above_it(folder, forbidden):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        assert not [name for name in imports(path) if name.startswith(forbidden)], path.name


def test_below_the_commands_training_knows_of_the_command_line_only_how_options_are_declared():
    commands = {"train.py", "prepare.py", "plan.py", "accelerate_loop.py"}
    for path in (ROOT / "training").rglob("*.py"):
        used = {name for name in imports(path) if name.startswith("vanilla_transformer.command_line")}
        assert path.name in commands or used <= {"vanilla_transformer.command_line.parsing"}, path


def test_every_folder_is_packaged():
    """training/ and scripts/ install inside the package, so setuptools needs a list."""
    tops = ("vanilla_transformer", "training", "scripts", "model_cards")
    folders = {path.parent.relative_to(ROOT) for top in tops for path in (ROOT / top).rglob("*.py")}
    names = {".".join(folder.parts) for folder in folders}
    expected = {name if name.startswith("vanilla_transformer") else f"vanilla_transformer.{name}" for name in names}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(settings["tool"]["setuptools"]["packages"]) == expected


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
import vanilla_transformer.models.beam_search
from transformers import AutoConfig
for name in vanilla_transformer.__all__:
    getattr(vanilla_transformer, name)
print(AutoConfig.for_model("vanilla_transformer").model_type, type(vanilla_transformer.models.beam_search).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["vanilla_transformer", "module"]


def test_no_module_shares_its_name_with_something_it_exports():
    """Else `import vanilla_transformer.models.beam_search` could give a function."""
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert path.stem not in names, path


def test_no_two_files_have_one_name():
    """A search by file name would offer both."""
    names = [
        path.name for top in ("vanilla_transformer", "training", "scripts") for path in (ROOT / top).rglob("*.py")
    ]
    repeated = {name for name in names if names.count(name) > 1}
    assert repeated == {"__init__.py"}
