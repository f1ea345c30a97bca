"""Languages found by themselves: sentences nearly always, one word never."""

from pathlib import Path

import pytest
from transformers import pipeline

from vanilla_transformer import Translator
from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.translation.language_detection import Detection, detect, languages_of_text


LANGUAGES = ["en", "de", "fr", "es", "zh"]
PHRASES = {
    "de": ["Hallo, wie geht's?", "Guten Tag", "Wo ist der Bahnhof?", "ICH HABE HUNGER", "Es ist kalt."],
    "fr": ["Comment ça va ?", "Je suis professeure.", "Où est la gare ?", "Il y a eu un accident.", "Tu me manques."],
    "es": ["¿Dónde está la estación?", "Buenos días", "Soy de China.", "Me gustaría un café.", "Cuesta veinte euros."],
    "zh": ["你好", "我", "我叫Anna。", "车站在哪里？", "请给我一杯咖啡。"],
}
FIRST_INPUTS = (Path(__file__).parents[3] / "docs" / "first_inputs.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(("language", "text"), [(code, text) for code, texts in PHRASES.items() for text in texts])
def test_a_phrase_says_its_language(language, text):
    found = detect(text, LANGUAGES)
    assert found.language == language
    assert found.is_certain


def test_no_english_input_or_single_word_is_taken_for_another_language():
    words = {word for text in FIRST_INPUTS for word in text.split()}
    # English words that eld finds in other languages only.
    words |= {"hat", "die", "stolen", "pie", "tornado", "pan", "Twelve", "tomato", "Hello, friends!", "café", "naïve"}
    assert {detect(text, LANGUAGES).language for text in {*FIRST_INPUTS, *words}} == {"en"}


UNCLEAR = ["", "  ", "12345", "info@example.com", "https://www.example.org/wo/ist/das", "😀", "Hotel", "Tom Miller"]


@pytest.mark.parametrize("text", [*UNCLEAR, "\ud800"])
def test_without_a_clear_text_the_first_language_is_assumed(text):
    assert detect(text, ["fr", "en", "de"]) == Detection("fr", 0.0)


def test_chinese_needs_as_many_han_characters_as_other_words():
    assert detect("The word 中文 means Chinese.", LANGUAGES).language == "en"
    assert detect("日本語のテキスト", LANGUAGES) == Detection("en", 0.0)  # kana: no Chinese
    assert detect("车站在哪里？", ["en_XX", "zh_CN"]) == Detection("zh_CN", 1.0)


def test_a_language_that_eld_does_not_know_can_not_be_told_from_others():
    assert not detect("Wo ist der Bahnhof?", ["gd", "de"]).is_certain


def test_what_is_given_or_the_only_one_is_not_looked_for():
    several = tuple(map(Languages.parse, ("en-de", "en-fr", "de-en", "fr-en")))
    german = "Wo ist der Bahnhof?"
    assert languages_of_text(german, Languages("en-US", "fr"), several) == (("en", "fr"), None)
    assert languages_of_text(german, Languages("auto", None), several[:1]) == ((None, None), None)
    for source in (None, "auto"):
        (languages, found) = languages_of_text(german, Languages(source, "en"), several)
        assert languages == ("de", "en")
        assert found.is_certain
    assert languages_of_text(german, Languages(None, "de"), several)[0] == ("de", "de")
    # From German into French there is no direction: the text is not evidence enough to refuse it.
    assert languages_of_text(german, Languages(None, "fr"), several) == (("en", "fr"), ("en", 0.0))
    assert languages_of_text("Hotel", Languages(None, "en"), several) == (("de", "en"), ("de", 0.0))
    with pytest.raises(ValueError, match=r"'it' is not a language of the model: choose one of en, de, fr\."):
        languages_of_text(german, Languages(None, "it"), several)
    with pytest.raises(ValueError, match="source_lang='auto': the model does not record"):
        languages_of_text(german, Languages("auto", "fr"), ())


@pytest.fixture(scope="module")
def everyday():
    return Translator.from_pretrained("everyday")


def test_texts_of_several_languages_find_their_ways(everyday):
    texts = ["Wo ist der Bahnhof?", "Where is the station?", "Hotel", "Ich bin hier. Ich bin müde."]
    german, english, hotel, sentences = (each[0] for each in everyday.translate(texts, target_lang="en"))
    assert german.text == everyday(texts[0], source_lang="de", target_lang="en")
    assert german.detected.language == "de"
    assert not german.unchanged
    assert (english.text, english.unchanged) == (texts[1], True)
    assert hotel.detected == Detection("de", 0.0)
    assert sentences.detected.is_certain
    assert everyday(texts[0]) == german.text  # from German there is only English
    into_german = next(everyday.translate(["  Wo ist  der Bahnhof? "], target_lang="de", split_sentences=True))[0]
    assert (into_german.text, into_german.unchanged) == ("  Wo ist  der Bahnhof? ", True)


def test_a_language_that_is_given_is_believed(everyday):
    text = "Where is the station?"
    (given,) = next(everyday.translate([text], source_lang="de", target_lang="de", confidence=True))
    assert (given.text, given.unchanged, given.detected, given.confidence) == (text, True, None, 1.0)


def test_the_pipeline_says_what_it_found():
    pipe = pipeline("vanilla-translation", model=str(Path(__file__).parents[3] / "model_cards" / "everyday-to-en"))
    found = pipe("Wo ist der Bahnhof?")
    assert found["src_lang"] == "de"
    unchanged = pipe("Where is the station?", src_lang="auto", tgt_lang="en")
    assert unchanged["translation_text"] == "Where is the station?"
    assert unchanged["unchanged"]
