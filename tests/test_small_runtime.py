"""Translating, converting and serving without torch and transformers, where they are not installed and where they are.

The small environment is a folder of links to the packages that docs/serving.md names and to what they require. Nothing
else can be imported there.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vanilla_transformer import Translator
from vanilla_transformer.hub.saved_files import BUNDLED


pytest.importorskip("ctranslate2")

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "model_cards" / "multi30k-en-de-tiny"
TEXTS = ["A dog runs.", "Two men are standing on a ladder."]
LARGE = ("torch", "transformers")


def packages_in_docs() -> list[str]:
    """The packages that docs/serving.md installs beside this one."""
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^pip install (tokenizers .*)$", text, re.MULTILINE)
    return line.split()


def with_requirements(names: list[str]) -> set[str]:
    found, waiting = set(), list(names)
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            needed = map(Requirement, distribution(name).requires or [])
            waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A folder with links to the packages of the small environment, and to this one."""
    folder = tmp_path_factory.mktemp("site")
    for name in with_requirements(packages_in_docs()):
        package = distribution(name)
        for top in {file.parts[0] for file in package.files or [] if ".." not in file.parts}:
            if top != "__pycache__" and not (folder / top).exists():
                (folder / top).symlink_to(package.locate_file(top))
    assert not any((folder / name).exists() for name in LARGE)
    own = folder / "vanilla_transformer"
    own.mkdir()
    for path in [*(ROOT / "vanilla_transformer").iterdir(), *(ROOT / name for name in ("training", "scripts"))]:
        (own / path.name).symlink_to(path)
    cards = own / "model_cards"
    cards.mkdir()
    (cards / "__init__.py").touch()
    for name in BUNDLED:
        shutil.copytree(MODEL.parent / name, cards / name)
    return folder


@pytest.fixture
def environment(site, tmp_path):
    return {
        **{name: value for name, value in os.environ.items() if name in ("PATH", "CT2_USE_MKL")},
        **{"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"},
        **{"HF_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
    }


@pytest.fixture
def run(environment, tmp_path):
    """Runs Python in the small environment. `-S` leaves out all other packages."""

    def run(*words, text=None):
        command = [sys.executable, "-S", *map(str, words)]
        return subprocess.run(
            command, env=environment, input=text, capture_output=True, text=True, timeout=120, cwd=tmp_path
        )

    return run


@pytest.fixture(scope="module")
def expected():
    return Translator.from_pretrained(MODEL, backend="ctranslate2", device="cpu")(TEXTS)


def test_the_command_line_converts_and_translates(run, expected):
    for _ in range(2):
        done = run("-m", "vanilla_transformer", "translate", "--model", MODEL.name, text="\n".join(TEXTS) + "\n")
        assert done.stdout.splitlines() == expected, done.stderr
    done = run("-m", "vanilla_transformer", "translate", "I am hungry.")
    into = Translator.from_pretrained("everyday", backend="ctranslate2", device="cpu")
    languages = ("de", "fr", "es", "zh")
    assert done.stdout.splitlines() == [
        f"{language}\t{into('I am hungry.', target_lang=language)}" for language in languages
    ]
    assert run("-m", "vanilla_transformer", "--help").returncode == 0
    done = run("-m", "vanilla_transformer", "translate", "--help")
    assert "--num_beams" in done.stdout


def test_python_splits_sentences_scores_attends_and_names_what_needs_torch(run, expected):
    code = f"""
import json, sys
from vanilla_transformer import Translator
from vanilla_transformer.hub.saved_files import BUNDLED
translator = Translator.from_pretrained("multi30k-en-de-tiny", split_sentences=True)
texts = {TEXTS!r}
refused = []
for call in (
    lambda: translator(texts[0], glossary={{"dog": "Katze"}}),
    lambda: list(translator.translate(texts, attention=True, split_sentences=False)),
    lambda: Translator.from_pretrained("multi30k-en-de-tiny", backend="torch"),
):
    try:
        call()
    except (ValueError, ImportError) as error:
        refused.append(str(error))
print(json.dumps({{
    "together": translator(" ".join(texts)),
    "probability": next(translator.score([(texts[0], "Ein Hund rennt.")])).log_probability,
    "alignment": translator.attend(texts[0], "Ein Hund rennt.").alignment,
    "refused": refused,
}}))
"""
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    translator = Translator.from_pretrained(MODEL, backend="torch", device="cpu")
    (score,) = translator.score([(TEXTS[0], "Ein Hund rennt.")])
    assert found["together"] == " ".join(expected)
    assert found["probability"] == pytest.approx(score.log_probability, abs=1e-3)
    assert [tuple(pair) for pair in found["alignment"]] == translator.attend(TEXTS[0], "Ein Hund rennt.").alignment
    assert [sentence.split(":")[0] for sentence in found["refused"]] == [
        "CTranslate2 lacks the option glossary",
        "CTranslate2 does not support attention=True",
        "backend='torch' needs torch and transformers",
    ]


def test_the_server_answers(environment, tmp_path, expected):
    words = ["serve", "--model", MODEL.name, "--port", "0"]
    command = [sys.executable, "-S", "-m", "vanilla_transformer", *words]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        try:
            assert server.stderr is not None
            address = next(match[1] for line in server.stderr if (match := re.search(r"serving at (\S+)", line)))

            def ask(path, **query):
                body = json.dumps({"source": "en", "target": "de", **query}).encode()
                request = urllib.request.Request(f"{address}/{path}", body, {"Content-Type": "application/json"})
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        return json.load(answer)
                except urllib.error.HTTPError as error:
                    return json.load(error)

            assert ask("translate", q=" ".join(TEXTS)) == {"translatedText": " ".join(expected)}
            marked = ask("translate", q="<p>A <b>dog</b> runs.</p>", format="html")
            assert marked["translatedText"].startswith("<p>Ein <b>Hund</b>")
            attention = {"q": TEXTS[0], "translation": expected[0]}
            assert ask("attention", **attention)["target"][1] == "Hund"
            assert ask("attention", **attention, heads=True)["error"].startswith("heads: this server runs without ")
            with urllib.request.urlopen(f"{address}/", timeout=60) as page:
                assert b"<html" in page.read()
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate()


def test_nothing_imports_torch_where_it_is_installed(tmp_path, monkeypatch):
    """Not even the conversion, though CTranslate2's converters would."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    code = f"""
import sys
import vanilla_transformer.scripts.translate as translate
import vanilla_transformer.serving.server
sys.argv = ["vanilla translate"]
translate.main(["--model", {str(MODEL)!r}, "--device", "cpu", "--input", "in.txt", "--output", "out.txt"])
assert not {{"torch", "transformers", "pyarrow"}} & sys.modules.keys()
"""
    (tmp_path / "in.txt").write_text("\n".join(TEXTS) + "\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out.txt").read_text().splitlines()) == 2
