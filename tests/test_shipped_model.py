"""The model that comes with the repository: it loads as any other does, translates as it did when it was released, and
its folder is a whole repository of the Hub."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer import Translator
from vanilla_transformer.hub.check_export import check, require_whole
from vanilla_transformer.hub.export_folder import export
from vanilla_transformer.training.evaluation.metrics import bleu


ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "model_cards" / "multi30k-en-de-tiny"
CAPTIONS = Path(__file__).parent / "data" / "captions"  # 50 pairs of our own making, none of them in Multi30k

TRANSLATIONS = {
    "A man in a blue shirt is standing on a ladder and cleaning a window.": (
        "Ein Mann in einem blauen Hemd steht auf einer Leiter und reinigt ein Fenster."
    ),
    "Two children are playing in the sand.": "Zwei Kinder spielen im Sand.",
    "A brown dog is running through the grass.": "Ein brauner Hund rennt durch das Gras.",
    "A group of friends is having dinner in a restaurant.": (
        "Eine Gruppe von Freunden isst in einem Restaurant Abendessen."
    ),
    "The cyclist rides past a red house.": "Der Radfahrer fährt an einem roten Haus vorbei.",
}
CAPTIONS_BLEU = 83.52


@pytest.fixture(scope="module")
def translator():
    return Translator.from_pretrained(FOLDER, backend="torch", device="cpu")


def test_translations_are_those_of_the_release(translator):
    assert dict(zip(TRANSLATIONS, translator(list(TRANSLATIONS)), strict=True)) == TRANSLATIONS


def test_bleu_on_captions_of_our_own(translator):
    sources, references = (Path(f"{CAPTIONS}.{side}").read_text("utf-8").splitlines() for side in ("en", "de"))
    assert len(sources) == len(references) == 50
    # A tie within rounding may fall otherwise on another CPU: a sentence of fifty is worth about one point.
    assert bleu(translator(sources), references).score == pytest.approx(CAPTIONS_BLEU, abs=1.0)


def test_stock_classes_load_it(translator):
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
    assert model.num_parameters() <= 2_700_000
    text = next(iter(TRANSLATIONS))
    output = model.generate(**tokenizer(text, return_tensors="pt"), num_beams=1, max_new_tokens=40)
    assert tokenizer.decode(output[0], skip_special_tokens=True) == translator(text, num_beams=1)


def test_the_folder_is_a_whole_repository_in_safetensors():
    require_whole(FOLDER)
    files = [path for path in FOLDER.rglob("*") if path.is_file() and path.relative_to(FOLDER).parts[0][0] != "."]
    assert sum(path.stat().st_size for path in files) < 12 * 10**6
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".pkl")]
    with safe_open(FOLDER / "model.safetensors", framework="pt") as file:
        assert file.keys()


def test_it_has_no_code_and_its_export_translates_without_this_package(translator, tmp_path):
    assert not list(FOLDER.rglob("*.py"))
    assert "auto_map" not in json.loads((FOLDER / "config.json").read_text())
    export(translator.model, tmp_path, translator.tokenizer, card="# model")
    assert check(tmp_path, translator, list(TRANSLATIONS)) == list(TRANSLATIONS.values())


def test_generate_follows_the_search_that_the_model_names(translator):
    """The stored length penalty is meant for this package's search, and stock code gives what `Translator` gives."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(FOLDER), AutoTokenizer.from_pretrained(FOLDER)
    batch = tokenizer(list(TRANSLATIONS), padding=True, return_tensors="pt")
    assert tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True) == list(TRANSLATIONS.values())


def test_the_card_says_what_people_must_know():
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for words in ("license: other", "non-commercial", "sacreBLEU", "nrefs:1|case:mixed", "learning_curve.png"):
        assert words in card
    assert card.count("reference:") >= 5  # real failures, with what would have been right


@pytest.mark.parametrize("given", ["I am hungry.\n", ""], ids=["stdin", "nothing"])
def test_make_translate(given):
    command = ["make", "--no-print-directory", "translate", f"BIN={Path(sys.executable).parent}", "INSTALLED="]
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, check=True)
    lines = done.stdout.splitlines()
    text = given.strip() or lines.pop(0)
    everyday = Translator.from_pretrained("everyday")
    there = [everyday(text, target_lang=language) for language in ("de", "fr", "es", "zh")]
    assert lines[:4] == [f"{language}\t{each}" for language, each in zip(("de", "fr", "es", "zh"), there, strict=True)]
    assert lines[4:] == [f"en\t{each}" for each in everyday(there, target_lang="en")]
    assert "hungry" in lines[4] or not given


def test_everyday_translates_any_case():
    everyday = Translator.from_pretrained("everyday")
    text = "Where is the nearest train station?"
    for language in ("de", "fr", "es"):
        small, capitals, heading = everyday([text, text.upper(), text.title()], target_lang=language)
        assert capitals == small.upper()
        assert heading.lower() == small.lower()
    assert Translator.from_pretrained("everyday-en-de").marks_capitals
    assert not Translator.from_pretrained("multi30k-en-de-tiny").marks_capitals
