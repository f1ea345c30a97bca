"""Everything works without the room, with the same translations."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


PACKAGE = Path(__file__).parents[3] / "vanilla_transformer"
MODEL = PACKAGE.parent / "model_cards" / "multi30k-en-de-tiny"
TEXTS = (PACKAGE.parent / "tests" / "data" / "captions.en").read_text(encoding="utf-8").splitlines()
TRANSLATE = """
import json, sys
# An editable installation would find the room in the source.
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in repr(finder)]
import vanilla_transformer
from vanilla_transformer import Translator
translator = Translator.from_pretrained(sys.argv[1], backend="torch")
texts = json.load(sys.stdin)
translations = [list(translator(texts, num_beams=beams)) for beams in (1, 4)]
print(json.dumps([vanilla_transformer.__file__, "vanilla_transformer.cpu.packed_decoder_steps" in sys.modules]))
print(json.dumps(translations))
"""


def translated(folder: Path, *deleted: str) -> tuple[bool, list[list[str]]]:
    """Whether decoder steps were packed, and the translations of a copy of the package without some of its rooms."""
    copied = shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", *deleted))
    done = subprocess.run(
        [sys.executable, "-c", TRANSLATE, str(MODEL)],
        input=json.dumps(TEXTS),
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (file, is_packed), translations = map(json.loads, done.stdout.splitlines()[-2:])
    assert Path(file).parent == copied
    return is_packed, translations


def test_translations_are_the_same_without_the_room(tmp_path):
    with_it, expected = translated(tmp_path / "whole")
    without_it, translations = translated(tmp_path / "without", "cpu")
    assert (with_it, without_it) == (True, False)
    assert translations == expected
