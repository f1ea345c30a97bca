"""Checks README, docs/ and CONTRIBUTING.md: links, paths, commands, pictures, named tests and Python blocks."""

import ast
import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from vanilla_transformer.command_line.dataclass_parser import DataclassParser
from vanilla_transformer.command_line.verbs import VERBS
from vanilla_transformer.scripts.explain.explain import TOPICS


ROOT = Path(__file__).parent.parent
GUIDES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "model_cards/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs" / "tour.ipynb",
]
PICTURES = ROOT / "docs" / "pictures"
DOCUMENTS = [*GUIDES, ROOT / "CHANGELOG.md"]
TARGETS = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))

FENCE = re.compile(r"(?ms)^```(\w*)\n(.*?)^```$")
# Inline code, and whether the text says that the file is yet to be written.
INLINE_CODE = re.compile(r"`([^`\n]+)`( \(new\))?")
REPOSITORY_PATH = re.compile(r"(?:vanilla_transformer|training|scripts|tests|model_cards|docs|\.github)/[\w./*-]*")
# A link to code says what the file defines: [`name`](../folder/file.py).
CODE_LINK = re.compile(r"\[`([\w.]+)`\]\(([^)\s#]+\.py)(?:#L\d+)?\)")
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
# Inline code that is a command: it has an option or an argument.
COMMAND = re.compile(r" --|^make \w|^vanilla \w+ \w")
# The two training programs behind `accelerate launch` and `python` take the options of vanilla train.
PROGRAMS = ("training/train.py", "training/accelerate_loop.py")

# Where the dicts are that CONTRIBUTING.md adds to.
REGISTRIES = {
    "POSITIONS": "vanilla_transformer.models.variants",
    "SCORES": "vanilla_transformer.models.variants",
    "PATTERNS": "vanilla_transformer.models.variants",
    "OBJECTIVES": "vanilla_transformer.training.objectives.cross_entropy",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text_of(path: Path) -> str:
    """The text of a document: of a notebook, that of its Markdown cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n\n".join(
        "".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"
    )


def definitions(path: Path) -> set[str]:
    """The names of functions, methods, classes and constants that a Python file defines."""
    names = set()
    for node in ast.walk(ast.parse(text_of(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a document in one language."""
    return [block for name, block in FENCE.findall(text_of(path)) if name == language]


def prose(path: Path) -> str:
    return FENCE.sub("", text_of(path))


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    titles = re.findall(r"(?m)^#+ (.+)$", prose(path))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def command_words(path: Path) -> list[list[str]]:
    """The commands of a document's bash blocks and inline code, each as a list of words."""
    texts = [block.replace("\\\n", " ") for block in blocks(path, "bash")]
    inline = [code for code, _ in INLINE_CODE.findall(prose(path)) if COMMAND.search(code)]
    variables = dict(re.findall(r"(?m)^([A-Z]+)='(.*)'$", "\n".join(texts)))
    commands = []
    for line in [line for text in texts for line in text.splitlines()] + inline:
        line = re.sub(r"\$([A-Z]+)\b", lambda match: variables.get(match[1], match[0]), line)
        lexer = shlex.shlex(line.replace("\\|", "|"), posix=True, punctuation_chars="|&;")
        lexer.whitespace_split = True
        commands += _split_at_operators(list(lexer))
    return commands


def _split_at_operators(words: list[str]) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for word in words:
        if word and set(word) <= set("|&;"):
            commands.append([])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]


def our_commands(path: Path) -> list[list[str]]:
    """Those commands of a document that are this package's: the verb, then its arguments."""
    ours = []
    for words in command_words(path):
        for place, word in enumerate(words):
            rest = words[place + 1 :]
            if word in PROGRAMS:
                ours.append(["train", *rest])
            elif word.split("/")[-1] == "vanilla":
                size = 2 if " ".join(rest[:2]) in VERBS else 1
                ours.append([" ".join(rest[:size]), *rest[size:]])
            else:
                continue
            break
    return ours


COMMANDS = sorted({(name_of(path), shlex.join(command)) for path in GUIDES for command in our_commands(path)})
PYTHON_BLOCKS = [(name_of(path), block) for path in GUIDES for block in blocks(path, "python")]


class Parsed(BaseException):
    """The arguments of a command are understood."""


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), target
        if linked.suffix == ".py" and anchor:  # a line, as GitHub numbers it
            assert 1 <= int(anchor.removeprefix("L")) <= len(text_of(linked).splitlines()), target
        else:
            assert not anchor or anchor in anchors(linked), target


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_to_code_name_what_the_file_defines(path):
    for symbol, target in CODE_LINK.findall(prose(path)):
        assert symbol.split(".")[-1] in definitions((path.parent / target).resolve()), f"{target} has no {symbol}"


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_named_tests_exist(path):
    for file, name in NAMED_TEST.findall(prose(path)):
        assert name in definitions(ROOT / file), f"{file}::{name}"


@pytest.mark.parametrize("number", range(1, 21))
def test_every_question_has_an_answer_with_code_and_a_test(number):
    sections = re.split(r"(?m)^#{2,3} ", text_of(ROOT / "docs" / "questions.md"))
    numbers = [int(number) for number in re.findall(r"(?m)^### (\d+)\. ", text_of(ROOT / "docs" / "questions.md"))]
    assert numbers == list(range(1, 21))
    (answer,) = [section for section in sections if section.startswith(f"{number}. ")]
    targets = [target for _, target in CODE_LINK.findall(answer)]
    assert [target for target in targets if target.startswith("../tests/")], "no test"
    # BatchNorm is the one thing that this package does not have.
    assert number == 16 or [target for target in targets if not target.startswith("../tests/")], "no code"


def test_both_languages_of_the_questions_have_the_same_figures_links_and_commands():
    """Section by section. Their order inside a section follows the grammar of each language."""
    sections = {}
    for name in ("questions.md", "questions.zh.md"):
        text = text_of(ROOT / "docs" / name).replace("questions.zh.md", "questions.md")  # each links to the other
        sections[name] = re.split(r"(?m)^#{2,3} ", text)
    assert len(sections["questions.md"]) == len(sections["questions.zh.md"])
    for english, chinese in zip(*sections.values(), strict=True):
        for what in (numbers, links, lambda text: FENCE.findall(text)):
            assert sorted(what(english)) == sorted(what(chinese)), english.splitlines()[0]


def numbers(text: str) -> list[str]:
    """The numbers of a text: not those in code and in the targets of links."""
    return re.findall(r"\d+(?:[.,]\d+)*(?:e-\d+)?", re.sub(r"(?s)```.*?```|`[^`]*`|\]\([^)]*\)", "", text))


def links(text: str) -> list[str]:
    """Where a text leads, pictures included, and not within its page."""
    return re.findall(r"\]\(([^)#\s][^)\s]*)\)", text)


def test_every_topic_has_its_picture_its_figures_and_its_command():
    document = text_of(ROOT / "docs" / "questions.md")
    linked = set(re.findall(r"!\[[^\]]{20,}\]\(pictures/(\w+)\.png\)", document))
    assert {path.stem for path in PICTURES.glob("*.json")} == set(TOPICS)
    for topic in TOPICS:
        assert topic in linked
        assert f"\nvanilla explain {topic}\n" in document
        assert json.loads(text_of(PICTURES / f"{topic}.json"))["tables"], topic


def test_every_picture_is_small_and_on_a_page():
    pages = "".join(map(text_of, (ROOT / "docs").glob("*.md")))
    linked = set(re.findall(r"!\[[^\]]{20,}\]\(pictures/(\w+)\.png\)", pages))
    assert linked == {path.stem for path in PICTURES.glob("*.png")}
    for path in PICTURES.iterdir():
        assert path.stat().st_size < 160_000, f"{path.name} is too large"


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_paths_of_the_repository_exist(path):
    inline = [word for code, new in INLINE_CODE.findall(prose(path)) if not new for word in code.split()]
    in_blocks = [word for block in blocks(path, "bash") for word in block.split()]
    paths = [word for word in inline + in_blocks if REPOSITORY_PATH.fullmatch(word)]
    assert [word for word in paths if not list(ROOT.glob(word.rstrip("/")))] == []


def test_every_promise_has_tests_that_exist():
    document = text_of(ROOT / "docs" / "promises.md")
    rows = re.findall(r"(?m)^\| (?!promise|---)(.+) \| (.+) \|$", document)
    assert len(rows) > 25
    for promise, tests in rows:
        assert NAMED_TEST.search(tests), promise  # which exist: see above


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_make_targets_exist(path):
    for words in command_words(path):
        if words[0] == "make":
            assert words[1] in TARGETS, shlex.join(words)


@pytest.mark.parametrize(("document", "command"), COMMANDS)
def test_a_command_is_understood(document, command, monkeypatch, tmp_path, capsys):
    """Parses the command with the script's own `main`, which is stopped before it does anything."""
    name, *arguments = shlex.split(command)
    if name in ("--help", "--version", "COMMAND") or "--help" in arguments:
        return
    assert name in VERBS, f"{document} names a command that does not exist"
    main = import_module(f"vanilla_transformer.{VERBS[name].module}").main
    if name == "train":  # the reader's copy of a recipe
        copy = tmp_path / "mine.yaml"
        if {"--list_recipes", "--save_recipe"} & set(arguments):  # quick enough to run
            main([str(copy) if word == copy.name else word for word in arguments])
            assert "multi30k_en_de" in capsys.readouterr().out or copy.is_file()
            return
        arguments = ["demo" if word == copy.name else word for word in arguments]
    monkeypatch.chdir(ROOT)
    dataclasses_of = DataclassParser.dataclasses_of

    def parse_and_stop(parser, *values, **options):
        dataclasses_of(parser, *values, **options)
        raise Parsed

    monkeypatch.setattr(DataclassParser, "dataclasses_of", parse_and_stop)
    if name == "train":  # the recipes for GPUs have bf16, which the library refuses on the CPU
        arguments += ["--use_cpu", "true", "--bf16", "false"]
    with pytest.raises(Parsed):
        main(arguments)


@pytest.mark.parametrize(("document", "code"), PYTHON_BLOCKS, ids=lambda value: value.split("\n")[0][:40])
def test_python_blocks_compile_and_their_imports_resolve(document, code):
    tree = compile(code, document, "exec", flags=ast.PyCF_ONLY_AST)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert alias.name.startswith("my_") or import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            if node.module.startswith("my_"):
                continue
            module = import_module(node.module)
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert not missing, f"{node.module} has no {missing}"


def run_example(registry: str, name: str, monkeypatch) -> dict:
    """Runs the example of CONTRIBUTING.md that registers a part, and returns the dict; the entry is removed later."""
    entries = getattr(import_module(REGISTRIES[registry]), registry)
    (code,) = [block for block in blocks(ROOT / "CONTRIBUTING.md", "python") if f'{registry}["{name}"] = ' in block]
    monkeypatch.setitem(entries, name, None)
    exec(compile(code, "CONTRIBUTING.md", "exec"), {})
    return entries


@pytest.mark.parametrize(
    ("registry", "name", "field"),
    [
        ("POSITIONS", "alibi", "position_encoding"),
        ("SCORES", "cosine", "score_function"),
        ("PATTERNS", "near", "attention_pattern"),
    ],
)
def test_variants_of_contributing_compute_something_else(registry, name, field, make_model, batch, monkeypatch):
    run_example(registry, name, monkeypatch)
    default = make_model()
    model = make_model(**{field: name})
    model.load_state_dict(default.state_dict())
    long = {**batch, "input_ids": torch.randint(3, 23, (3, 40)), "attention_mask": torch.ones(3, 40)}
    loss = model(**long).loss
    assert torch.isfinite(loss)
    assert not torch.allclose(loss, default(**long).loss)


def test_the_objective_of_contributing_is_plain_cross_entropy(make_model, batch, monkeypatch):
    objectives, model = run_example("OBJECTIVES", "plain", monkeypatch), make_model()
    objective = objectives["plain"](None, model.config, model.config.pad_token_id)
    assert_close(objective(model, batch), model(**batch).loss)


def test_the_architecture_page_names_every_room():
    named = {code.rstrip("/") for code, _ in INLINE_CODE.findall(prose(ROOT / "docs" / "architecture.md"))}
    parts = [path for top in ("vanilla_transformer", "training", "scripts") for path in (ROOT / top).iterdir()]
    rooms = [path for path in parts if path.is_dir() and any(path.glob("*.[py]*")) and path.name != "__pycache__"]
    assert [name_of(room) for room in rooms if name_of(room) not in named] == []


def test_the_reading_list_of_the_paper_is_short_and_its_line_counts_are_about_right():
    rows = re.findall(r"(?m)^\| `(\w+\.py)` \| (\d+) \|", text_of(ROOT / "docs" / "architecture.md"))
    counts = [len(text_of(ROOT / "vanilla_transformer" / "models" / name).splitlines()) for name, _ in rows]
    assert counts == pytest.approx([int(lines) for _, lines in rows], rel=0.2)
    assert sum(counts) < 3000


def test_readme_is_short():
    assert len(text_of(ROOT / "README.md").splitlines()) <= 190


def test_readme_has_no_long_line_outside_tables():
    lines = text_of(ROOT / "README.md").splitlines()
    assert [line for line in lines if len(line) > 119 and not line.startswith("|")] == []
