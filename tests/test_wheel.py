"""An installed copy works without the repository: its wheel has everything, and the commands of README run from it."""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest


ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CAPTIONS = ROOT / "tests" / "data" / "captions"
PARTS = ("vanilla_transformer", "training", "scripts", "model_cards", "pyproject.toml", "README.md", "LICENSE")

# What a command of README gets in addition, so that it takes seconds.
SHORT_RUN = [
    *("--max_steps", "4", "--eval_steps", "4", "--save_steps", "2", "--save_total_limit", "2", "--logging_steps", "1"),
    *("--average_checkpoints", "2", "--warmup_steps", "2", "--max_tokens", "1024", "--use_cpu"),
]
SHORTER = {
    "vanilla train": SHORT_RUN,
    "vanilla export --exported": ["--dry_run"],  # the rest of the command needs the Hub
}
# Commands that need the Hub, and what the test does instead.
INSTEAD = {
    "vanilla convert marian --model Helsinki-NLP/opus-mt-en-de": ["cp", "-r", "runs/mine/model", "models/en-de"],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", ".ctranslate2")
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
        else:
            shutil.copyfile(ROOT / name, folder / "source" / name)
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=folder / "source", check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_has_all_files_that_the_package_reads(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = next(archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
        metadata = next(archive.read(name).decode() for name in names if name.endswith("METADATA"))
    for folder in ("vanilla_transformer", "training", "scripts", "model_cards"):
        prefix = "" if folder == "vanilla_transformer" else "vanilla_transformer/"
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        tracked = [path for path in files if not {"__pycache__", ".ctranslate2"} & set(path.parts)]
        missing = {prefix + path.relative_to(ROOT).as_posix() for path in tracked} - names
        assert missing <= {"vanilla_transformer/model_cards/README.md"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert all(f"{name} = {place}" in entry_points for name, place in project["scripts"].items())
    assert "Project-URL" in metadata


def commands_in_readme() -> list[str]:
    """The commands of this package in README's bash blocks, each on one line."""
    blocks = re.findall(r"(?ms)^```bash\n(.*?)^```$", README)
    lines = [line.split("   #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if re.search(r"\bvanilla \w", line)]


def shortened(command: str) -> str:
    for beginning, replacement in INSTEAD.items():
        if command.startswith(beginning):
            return shlex.join(replacement)
    more = [words for beginning, words in SHORTER.items() if command.startswith(beginning)]
    new_vocabulary = ["--vocab_size", "400"] if command.startswith("vanilla train multi30k") else []
    return " ".join([command, *new_vocabulary, *(shlex.join(words) for words in more)])


@pytest.mark.slow
def test_every_command_of_readme_runs_from_an_installed_wheel(wheel, tmp_path):
    """In a new environment outside the repository. It sees the installed libraries, but not this repository."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)

    folder = tmp_path / "work"
    for name in ("data/train", "data/val", "data/test", "data/news", "data/talks", "multi30k/test_2016_flickr"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        for language in ("en", "de"):
            shutil.copyfile(f"{CAPTIONS}.{language}", folder / f"{name}.{language}")
    (folder / "models").mkdir()
    shutil.copyfile(f"{CAPTIONS}.en", folder / "news.en")
    (folder / "big.en.gz").write_bytes(gzip.compress(Path(f"{CAPTIONS}.en").read_bytes()))
    (folder / "letter.txt").write_text("A man rides a bike. A dog runs.\n\n  A cat sleeps.\n", encoding="utf-8")
    (folder / "terms.tsv").write_text("man\tMann\n", encoding="utf-8")
    variables = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ""}

    def run(command: str) -> str:
        done = subprocess.run(command, shell=True, cwd=folder, env=variables, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stderr[-2000:]}"
        return done.stdout

    where = run("python -c 'import vanilla_transformer; print(vanilla_transformer.__file__)'")
    assert where.startswith(str(environment))
    # The commands that use the demo's model get a run on few sentences, with the weights of a trained model in it: an
    # untrained one writes long translations.
    text = "--train_files data/train --validation_files data/val --test_files data/test --vocab_size 400"
    run(f"vanilla train demo {text} {shlex.join(SHORT_RUN)}")
    shutil.copytree(ROOT / "model_cards" / "multi30k-en-de-tiny", folder / "runs/demo/model", dirs_exist_ok=True)
    ran = [command for command in commands_in_readme() if run(shortened(command)) is not None]
    assert len(ran) >= 10
    assert (folder / "letter.de.txt").read_text(encoding="utf-8").splitlines()[1] == ""
    assert all("Mann" in line for line in _translations_of_men(folder))
    for name in ("multi30k_en_de", "finetune"):
        assert name in run("vanilla train --list_recipes")


def _translations_of_men(folder: Path) -> list[str]:
    sources, translations = ((folder / name).read_text("utf-8").splitlines() for name in ("news.en", "terms.de"))
    pairs = zip(sources, translations, strict=True)
    men = [translation for source, translation in pairs if re.search(r"\bman\b", source, re.IGNORECASE)]
    assert men
    return men
