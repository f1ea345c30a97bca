"""The page in a real browser (`make browser` installs one): what people do with it, at two widths, light and dark."""

import shutil
from pathlib import Path

import pytest

from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.hub.saved_files import read_card
from vanilla_transformer.serving.access_limits import ApiKeys, Limits
from vanilla_transformer.serving.routes import Service, make_app
from vanilla_transformer.serving.served_models import Catalogue, ServedModel
from vanilla_transformer.serving.standalone_page import standalone_html
from vanilla_transformer.translation.attention_maps import attention_data

from .conftest import BUNDLED, UpperCaseTranslator, make_service, running


pytestmark = pytest.mark.slow
AXE = Path(__file__).parents[3] / "build" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
SIZES = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


class Browser:
    """Chromium, with words for what a person sees and does."""

    def __init__(self):
        from selenium import webdriver
        from selenium.webdriver import ActionChains, Keys
        from selenium.webdriver.common.by import By
        from selenium.webdriver.support.ui import WebDriverWait

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
            options.add_argument(argument)
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        self.actions, self.keys, self.css = ActionChains, Keys, By.CSS_SELECTOR
        self.wait = WebDriverWait(self.driver, 30)

    def open(self, address, width=1280, colours="light"):
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        scheme = {"features": [{"name": "prefers-color-scheme", "value": colours}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
        self.driver.get(address)
        self.driver.get_log("browser")

    def find(self, selector):
        return self.driver.find_element(self.css, selector)

    def all(self, selector):
        return self.driver.find_elements(self.css, selector)

    def until(self, condition):
        return self.wait.until(lambda _: condition())

    def until_translated(self, text):
        self.until(lambda: self.find("#translation").text == text)

    def word(self, text, place="#translation"):
        return next(word for word in self.all(f"{place} .word") if word.text == text)

    def point_at(self, element):
        self.actions(self.driver).move_to_element(element).perform()

    def press(self, *keys, control=False):
        chain = self.actions(self.driver)
        if control:
            chain.key_down(self.keys.CONTROL)
        chain.send_keys(*keys)
        (chain.key_up(self.keys.CONTROL) if control else chain).perform()

    def faults(self):
        """The serious faults that axe-core finds."""
        if not AXE.exists():
            pytest.skip("axe-core is missing: make browser (it needs npm)")
        self.driver.execute_script(AXE.read_text(encoding="utf-8"))
        violations = self.driver.execute_async_script("axe.run().then(r => arguments[0](r.violations))")
        return [
            (fault["id"], node["html"])
            for fault in violations
            if fault["impact"] in ("serious", "critical")
            for node in fault["nodes"]
        ]


@pytest.fixture(scope="module")
def browser():
    browser = Browser()
    yield browser
    browser.driver.quit()


@pytest.fixture(scope="module")
def address(bundled):
    """A server that translates captions into German, and anything German into upper case."""
    tiny = ServedModel("tiny", bundled, Languages("en", "de"), **read_card(BUNDLED))
    back = ServedModel("upper", UpperCaseTranslator(), Languages("de", "en"))
    with running(make_app(Service(Catalogue([tiny, back])))) as address:
        yield address


@pytest.mark.parametrize(("width", "colours"), SIZES)
def test_translation_alternatives_and_attention(browser, address, bundled, width, colours):
    browser.open(address, width, colours)
    browser.until(lambda: len(browser.all("#examples button")) == 5)
    assert browser.faults() == []
    example = browser.all("#examples button")[0]
    browser.until(lambda: example.is_enabled())
    example.click()
    text = read_card(BUNDLED)["examples"][0]
    browser.until_translated(bundled(text))
    assert browser.find("#count").text == f"{len(text)} / 10,000"
    assert browser.find("#description").text.startswith("Image captions")
    # Hover: the line to the word that it looks at.
    browser.until(lambda: browser.all("#links .word"))
    browser.point_at(browser.word("Hemd"))
    browser.until(lambda: "“Hemd” looks most at “shirt”: " in browser.find("#links .note").text)
    assert browser.word("Hemd", "#links").get_attribute("class") == "word on"
    assert len(browser.all("#links line.on")) >= 1
    # The keyboard does the same in the attention view.
    browser.driver.execute_script("arguments[0].focus()", browser.word("Mann", "#links"))
    assert browser.find("#links .note").text.startswith("“Mann” looks most at “man”: ")
    browser.press(browser.keys.TAB)
    assert browser.find("#links .note").text.startswith("“in” looks most at “in”: ")
    # Alternatives.
    browser.word("Hemd").click()
    browser.until(lambda: browser.all("#alternatives li b"))
    assert browser.faults() == []
    words = [word.text for word in browser.all("#alternatives li b")]
    assert "Hemd" not in words
    assert "Oberteil" in words
    browser.all("#alternatives li button")[words.index("Oberteil")].click()
    other = next(bundled.translate([text], prefix="Ein Mann in einem blauen Oberteil"))[0].text
    browser.until_translated(other)
    assert browser.driver.switch_to.active_element.text == "Oberteil"
    # Every layer and head, and the details.
    browser.find("#heads summary").click()
    browser.until(lambda: browser.all("#maps td[title]"))
    browser.find("#settings summary").click()
    assert len(browser.all("#ranked li")) >= 5
    browser.all("#ranked li button")[1].click()
    browser.until_translated(bundled(text))
    browser.until(lambda: browser.all("#maps td[title]") and browser.all("#links .word"))
    assert "--data-urlencode 'q=A man in a blue shirt" in browser.find("#command").text
    assert browser.faults() == []
    assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.driver.get_log("browser") == []
    loaded = browser.driver.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert len(loaded) > 5
    assert all(name.startswith(address) for name in loaded)


def test_every_way_to_change_a_text_translates_it(browser, address, bundled):
    first, second = "A dog runs.", "Two men play."
    browser.open(address)
    browser.until(lambda: browser.all("#source option"))
    text, cdp = browser.find("#text"), browser.driver.execute_cdp_cmd
    text.send_keys(first)
    browser.until_translated(bundled(first))
    text.send_keys(browser.keys.BACKSPACE)  # delete a character
    browser.until_translated(bundled(first[:-1]))
    browser.press("a", control=True)
    browser.press("x", control=True)  # cut: nothing is left
    assert browser.find("#translation").text == ""
    browser.press("v", control=True)  # paste
    browser.until_translated(bundled(first[:-1]))
    browser.press(browser.keys.ESCAPE)  # clear
    assert (text.get_attribute("value"), browser.find("#translation").text) == ("", "")
    browser.press("z", control=True)  # and undo
    browser.until_translated(bundled(first[:-1]))
    browser.find("#clear").click()
    place = {"x": text.rect["x"] + 30, "y": text.rect["y"] + 30}
    items = {"items": [{"mimeType": "text/plain", "data": second}], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        cdp("Input.dispatchDragEvent", {"type": kind, **place, "data": items})
    browser.until_translated(bundled(second))
    browser.find("#clear").click()
    cdp("Input.imeSetComposition", {"text": "A dog", "selectionStart": 5, "selectionEnd": 5})
    browser.until_translated(bundled("A dog"))  # while composing
    cdp("Input.insertText", {"text": "A dog sleeps."})
    browser.until_translated(bundled("A dog sleeps."))
    # A stale result is gone before anything else can happen.
    change = "const t = document.getElementById('text'); t.value = 'A'; t.dispatchEvent(new Event('input'));"
    stale = "return [document.getElementById('translation').textContent, document.getElementById('attention').hidden]"
    assert browser.driver.execute_script(change + stale) == ["", True]
    browser.press(browser.keys.ENTER, control=True)  # now, without a pause
    browser.until_translated(bundled("A"))


def test_languages_swap_and_sentences_are_explained_one_by_one(browser, address, bundled):
    browser.open(address)
    browser.until(lambda: browser.all("#source option"))
    browser.find("#text").send_keys("A dog runs. A man sleeps.")
    browser.until_translated("Ein Hund rennt. Ein Mann schläft.")
    browser.point_at(browser.word("schläft"))
    browser.until(lambda: [row.text for row in browser.all("#links .sentence")][:1] == ["A man sleeps."])
    first = browser.all("#translation .word")[0]
    browser.driver.execute_script("arguments[0].focus()", first)  # one stop for the tab key, arrows inside
    browser.press(browser.keys.ARROW_RIGHT)
    assert browser.driver.switch_to.active_element.text == "Hund"
    browser.find("#swap").click()
    browser.until_translated("EIN HUND RENNT. EIN MANN SCHLÄFT.")
    assert browser.find("#text").get_attribute("value") == "Ein Hund rennt. Ein Mann schläft."
    assert (browser.find("#text").get_attribute("lang"), browser.find("#description").text) == ("de", "upper")
    browser.until(lambda: browser.driver.execute_script("return localStorage.getItem('history')"))
    assert browser.find("#past").is_displayed()


def test_the_language_is_detected_and_a_text_in_the_target_language_stays(browser, address, bundled):
    def source():
        return browser.find("#source option:checked").text

    browser.open(address)
    browser.until(lambda: browser.all("#source option"))
    assert source() == "Detect language"
    browser.find("#text").send_keys("A dog runs in the snow.")
    browser.until_translated(bundled("A dog runs in the snow."))
    assert source() == "English (detected)"
    browser.find("#clear").click()
    browser.find("#text").send_keys("Der Hund ist hier.")
    browser.until_translated("Der Hund ist hier.")
    assert (source(), browser.find("#hint").text) == ("German (detected)", "The text is in German already")
    assert browser.find("#attention").get_attribute("hidden")
    browser.find("#clear").click()
    browser.find("#text").send_keys("dog")
    browser.until(lambda: source() == "English (assumed)")
    assert browser.find("#attention").get_attribute("hidden")  # one word has nowhere else to look
    browser.find("#clear").click()
    assert source() == "Detect language"


def test_words_with_a_low_confidence_are_marked(browser, address):
    """Answers that have a confidence for each word; the page marks the words below one half."""
    browser.open(address)
    browser.until(lambda: browser.all("#source option"))
    browser.driver.execute_script("""
        const plain = window.fetch;
        window.fetch = async (path, options) => {
            const answer = await (await plain(path, options)).json();
            if (path === "sentences") answer.sentences[0].translations[0].word_confidence = [0.9, 0.4, 0.5, 0.6];
            return new Response(JSON.stringify(answer));
        };""")
    browser.find("#text").send_keys("A dog runs.")
    browser.until_translated("Ein Hund rennt.")
    assert [word.text for word in browser.all("#translation .unsure")] == ["Hund"]


def test_the_documentation_has_no_faults(browser, address):
    browser.open(f"{address}/docs", 390, "dark")
    assert browser.faults() == []
    assert browser.driver.get_log("browser") == []


def test_an_error_is_a_sentence_in_place(browser):
    with running(make_app(make_service(max_characters=20))) as address:
        browser.open(address)
        browser.until(lambda: browser.all("#source option"))
        browser.find("#text").send_keys("a" * 21)
        browser.until(lambda: "q has 21 characters: send at most 20" in browser.find("#error").text)
        assert browser.find("#result").get_attribute("aria-busy") == "false"
        assert browser.faults() == []
        browser.find("#text").send_keys(browser.keys.BACKSPACE)
        browser.until_translated("A" * 20)
        assert browser.find("#error").text == ""
    browser.find("#text").send_keys(browser.keys.BACKSPACE)
    browser.until(lambda: "The server can't be reached" in browser.find("#error").text)


def test_with_keys_the_page_asks_for_one_and_keeps_it_in_the_tab(browser):
    with running(make_app(make_service(keys=ApiKeys(["secret"])))) as address:
        browser.open(address)
        browser.until(lambda: browser.find("#key").get_attribute("open"))
        assert browser.faults() == []
        browser.press("wrong", browser.keys.ENTER)
        browser.find("#text").send_keys("a dog")
        browser.until(lambda: browser.find("#key").get_attribute("open"))
        assert "api_key is missing or unknown" in browser.find("#reason").text
        browser.press("secret", browser.keys.ENTER)
        browser.until_translated("A DOG")
        stores = "return [sessionStorage.getItem('api_key'), JSON.stringify(localStorage), document.cookie]"
        in_tab, elsewhere, cookie = browser.driver.execute_script(stores)
        assert (in_tab, cookie) == ("secret", "")
        assert "secret" not in elsewhere
        assert "secret" not in browser.driver.execute_script("return document.getElementById('command').textContent")


def test_the_page_takes_its_own_longest_result(browser, bundled):
    limits = Limits(max_characters=300)
    model = ServedModel("tiny", bundled, Languages("en", "de"), limits=limits)
    text = "A man and a woman and a dog and a cat and " * 7
    with running(make_app(Service(Catalogue([model]), limits))) as address:
        browser.open(address)
        browser.until(lambda: browser.all("#source option"))
        browser.find("#text").send_keys(text)
        browser.until(lambda: browser.all("#links .word"))
        assert len(browser.find("#translation").text) > 300
        assert browser.all(".error") == []


@pytest.mark.parametrize(("width", "colours"), SIZES)
def test_standalone_pages_open_from_disk(browser, bundled, tmp_path, width, colours):
    sentence = "A dog runs."
    data = attention_data(sentence, bundled.attend(sentence, bundled(sentence)))
    frames = [
        {"tokens": ["▁ein", "▁ein"], "masked": [True, True], "probabilities": [0.9, 0.2]},
        {"tokens": ["▁ein", "▁Hund"], "masked": [False, True], "probabilities": [0.9, 0.7]},
    ]
    (tmp_path / "attention.html").write_text(standalone_html("Attention", "drawAttention", data), encoding="utf-8")
    page = standalone_html("Iterations", "drawIterations", {"frames": frames})
    (tmp_path / "iterations.html").write_text(page, encoding="utf-8")
    browser.open((tmp_path / "attention.html").as_uri(), width, colours)
    browser.point_at(browser.word("Hund", "#view"))
    assert browser.find("#view .note").text.startswith("“Hund” looks most at “dog”")
    assert len(browser.all("#view td[title]")) == 5 * 5
    assert browser.faults() == []
    browser.open((tmp_path / "iterations.html").as_uri(), width, colours)
    assert [token.text.split()[0] for token in browser.all(".token")] == ["mask", "mask"]
    next_button = browser.all("#view button")[1]
    next_button.click()
    assert browser.all(".token.repeated")
    next_button.click()
    next_button.click()
    assert [token.text.split()[0] for token in browser.all(".token")] == ["▁ein", "▁Hund"]
    assert browser.faults() == []
    assert browser.driver.get_log("browser") == []
    assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
