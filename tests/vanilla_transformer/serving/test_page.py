import re
import shutil
from types import SimpleNamespace

import gradio
import pytest
import torch
from starlette.testclient import TestClient

from vanilla_transformer.serving.access_limits import ApiKeys
from vanilla_transformer.serving.page import Page, attention_html
from vanilla_transformer.serving.server import make_site
from vanilla_transformer.serving.words import WordAttention

from .conftest import make_service, running


def test_the_attention_view_escapes_text_and_numbers_words():
    attention = WordAttention([(0, 1), (2, 3)], [(0, 4)], torch.tensor([[0.25, 0.5, 0.25]]))
    html = attention_html("< b", "<b>x", attention)
    assert re.sub("<[^>]*>", "", html).startswith("&lt; b&lt;b&gt;x")
    assert 'data-target="0" data-aligned="1"' in html
    assert re.findall(r'data-weight="([\d.]+)"', html) == ["0.2500", "0.5000", "0.2500"]


def test_the_command_gives_the_translation_of_the_page():
    page = Page(make_service())
    request = SimpleNamespace(request=SimpleNamespace(base_url="http://127.0.0.1:8000/"))
    command = page.curl("It's a dog", "upper", 4, 0.9, request)["value"]
    assert command == (
        "curl http://127.0.0.1:8000/translate -d source=en -d target=de -d model=upper -d length_penalty=0.9 "
        "--data-urlencode 'q=It'\"'\"'s a dog'"
    )


def test_menus_show_sentences_and_their_translations():
    page = Page(make_service())
    details = [
        {"sentence": "a", "hypotheses": [{"text": "A", "score": -0.5}, {"text": "AA", "score": -1}]},
        {"sentence": "b", "hypotheses": [{"text": "B", "score": -2}]},
    ]
    sentences, ranked = page.choices(details, None)
    assert (sentences["choices"], sentences["value"], sentences["visible"]) == ([("a", 0), ("b", 1)], 0, True)
    assert ranked["choices"] == [("-0.50  A", 0), ("-1.00  AA", 1)]
    assert page.choices(details, 1)[1]["choices"] == [("-2.00  B", 0)]
    assert page.choices(details[:1], 7)[0]["value"] == 0
    assert page.choices([], None)[1]["visible"] is False


def test_the_page_has_the_limits_of_the_api_and_takes_no_files():
    service = make_service(max_characters=5)
    with TestClient(make_site(service)) as client:
        assert "gradio" in client.get("/").text
        assert (
            client.post("/translate", json={"q": "a", "source": "en", "target": "de"}).json()["translatedText"] == "A"
        )
        assert client.post("/gradio_api/upload", files={"files": b"x"}).status_code == 404
        for path in ("/gradio_api/file=/etc/passwd", "/gradio_api/file/etc/passwd", "/file=/etc/passwd"):
            assert client.get(path).status_code == 404
        assert client.post("/gradio_api/run/translate", json={"data": ["a" * 6, "upper", 1, 0.6]}).status_code >= 400
        assert client.post("/gradio_api/queue/join", content=b"x" * 100_000).status_code == 413


def test_an_error_of_a_request_is_a_message():
    with pytest.raises(gradio.Error, match="There is no model 'other'"):
        Page(make_service()).curl("a", "other", 4, 0.6, None)


def test_with_api_keys_the_page_asks_for_one():
    with TestClient(make_site(make_service(keys=ApiKeys(["secret"])))) as client:
        assert client.get("/config").status_code == 401
        assert client.post("/login", data={"username": "me", "password": "wrong"}).status_code == 400
        assert client.post("/login", data={"username": "me", "password": "secret"}).status_code == 200
        assert client.get("/config").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_a_browser_translates_and_shows_attention(bundled, width):
    from selenium import webdriver
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    service = make_service(translator=bundled, name="tiny")
    text = "A brown dog jumps."
    with running(make_site(service), service.limits) as address:
        driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
        try:
            mobile = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 600}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", mobile)
            driver.get(address)
            wait = WebDriverWait(driver, 60)

            def find(selector):
                return driver.find_element(By.CSS_SELECTOR, selector)

            wait.until(lambda _: driver.find_elements(By.CSS_SELECTOR, "#attention .word"))
            find("#text textarea").clear()
            find("#text textarea").send_keys(text)
            wait.until(lambda _: find("#translation textarea").get_attribute("value") == bundled(text))
            wait.until(lambda _: find("#attention .source").text == text)
            assert find("#attention .target").text == bundled(text)
            assert len(driver.find_elements(By.CSS_SELECTOR, "#ranked input")) == 5
            hund = driver.find_element(By.XPATH, "//*[@id='attention']//span[text()='Hund']")
            ActionChains(driver).move_to_element(hund).perform()
            assert find("#attention .weight").text.startswith("Hund attends most to dog: 0.")
            assert "on" in hund.get_attribute("class").split()
            assert len(driver.find_elements(By.CSS_SELECTOR, "#attention line.on")) == 1
            shaded = driver.find_element(By.XPATH, "//*[@id='attention']//span[text()='dog']")
            assert shaded.get_attribute("style").startswith("background-color: rgba(31, 84, 160")
            driver.find_elements(By.CSS_SELECTOR, "#ranked input")[1].click()
            second = next(bundled.translate([text], n_best=2))[1].text
            wait.until(lambda _: find("#attention .target").text == second)
            find("#share").click()
            wait.until(lambda _: "--data-urlencode" in find("#command").text)
            assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        finally:
            driver.quit()
