"""One name for several models: each text goes to the model for its direction, and the rest is that of `Translator`."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from vanilla_transformer import Translator
from vanilla_transformer.hub.languages import Languages, choose_member
from vanilla_transformer.translation.translator_family import TranslatorFamily


TEXTS = ["Where is the station?", "Wo ist der Bahnhof?", "", "I am hungry.", "J'ai faim."]
SOURCES, TARGETS = ["en", "de", "en", "en", "fr"], ["de", "en", "zh", "es", "en"]


@pytest.fixture(scope="module")
def everyday():
    return Translator.from_pretrained("everyday")


def test_each_text_goes_to_the_model_for_its_direction(everyday):
    members = {
        name: Translator.from_pretrained(f"everyday-{name}") for name in ("en-de", "en-fr-es", "en-zh", "to-en")
    }
    for_language = {"de": "en-de", "es": "en-fr-es", "zh": "en-zh", "en": "to-en"}
    expected = [
        members[for_language[target]](text, source_lang=source, target_lang=target)
        for text, source, target in zip(TEXTS, SOURCES, TARGETS, strict=True)
    ]
    for window in (1, 2, 4096):
        everyday.set_limits(window=window)
        assert everyday(TEXTS, source_lang=SOURCES, target_lang=TARGETS) == expected
    assert everyday(TEXTS[0], target_lang="de") == expected[0]
    assert everyday(TEXTS[1], target_lang="en") == expected[1]
    assert next(everyday.score([("Wo?", "Where?")], target_lang="en")) == next(
        members["to-en"].score([("Wo?", "Where?")], source_lang="de")
    )


def test_it_has_the_directions_of_all_its_models(everyday):
    assert [str(direction) for direction in everyday.directions] == [
        *("en-de", "en-fr", "en-es", "en-zh", "de-en", "fr-en", "es-en", "zh-en")
    ]
    assert everyday.languages == Languages()


def test_a_model_is_loaded_when_its_first_text_comes():
    loaded = []

    def load(name):
        loaded.append(name)
        return Translator.from_pretrained(name)

    family = TranslatorFamily("everyday", load, max_source_tokens=7)
    assert not loaded
    assert family.member(target_lang="es") is family.member("en", "fr")
    assert loaded == ["everyday-en-fr-es"]
    assert family.member("zh").max_source_tokens == 7
    family.set_limits(max_source_tokens=9)
    assert family.member("en", "es").max_source_tokens == family.member("zh").max_source_tokens == 9


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda family: pickle.loads(pickle.dumps(family))])
def test_it_can_be_copied_and_pickled(everyday, copied):
    expected = everyday("Where is the station?", target_lang="de")
    family = copied(everyday)
    family.set_limits(max_source_tokens=7)
    assert family("Where is the station?", target_lang="de") == expected
    assert family.member("en", "de").max_source_tokens == 7
    assert everyday.member("en", "de").max_source_tokens != 7


def test_threads_load_a_model_once():
    loaded, barrier = [], threading.Barrier(2)

    def load(name):
        loaded.append(name)
        with suppress(threading.BrokenBarrierError):
            barrier.wait(timeout=1)  # until the other thread loads, too
        return Translator.from_pretrained(name)

    family = TranslatorFamily("everyday", load)
    with ThreadPoolExecutor(2) as pool:
        members = list(pool.map(family.member, ["en", "en"], ["de", "de"]))
    assert members[0] is members[1]
    assert loaded == ["everyday-en-de"]


def test_numbers_in_warnings_are_those_of_the_texts(caplog):
    family = Translator.from_pretrained("everyday", max_source_tokens=6)
    long = "word " * 20
    family(["a", long, "b", long], source_lang=["en", "en", "de", "fr"], target_lang=["de", "de", "en", "en"])
    assert {record.getMessage().split(" has ")[0] for record in caplog.records} >= {"Text 2", "Text 4"}


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ({}, "everyday translates en-de, .*: give target_lang"),
        ({"target_lang": "ja"}, "'ja' is not a language of everyday: choose one of en, de, fr, es, zh"),
        ({"source_lang": "de", "target_lang": "fr"}, "was not trained for de-fr"),
        ({"source_lang": "en"}, "give target_lang"),
    ],
)
def test_languages_that_decide_nothing_get_a_sentence(everyday, languages, message):
    with pytest.raises(ValueError, match=message):
        everyday("Hello!", **languages)


def test_what_belongs_to_one_model_names_the_way_to_it(everyday):
    for name in ("model", "backend", "tokenizer"):
        with pytest.raises(AttributeError, match=r"belongs to one: take it with member\(target_lang"):
            getattr(everyday, name)


def test_one_language_chooses_a_model_where_it_decides():
    assert choose_member("everyday", Languages(None, "en")) == "everyday-to-en"
    assert choose_member("everyday", Languages("zh", None)) == "everyday-to-en"
    assert choose_member("everyday", Languages("en", "fr")) == "everyday-en-fr-es"
    with pytest.raises(ValueError, match="give target_lang"):
        choose_member("everyday", Languages("en", None))
