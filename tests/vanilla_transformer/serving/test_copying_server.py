"""A served model with placeholders: in text, HTML, sentences, alternatives and attention the values come back."""

import pytest
from starlette.testclient import TestClient

from tests.copying_backend import CopyingBackend, without
from vanilla_transformer import Translator
from vanilla_transformer.models.tokenization_vanilla_transformer import train_tokenizer, with_placeholders
from vanilla_transformer.serving.routes import make_app

from .conftest import make_service


LANGUAGES = {"source": "en", "target": "de"}
TEXT = "Write to info@example.com before 10:30. Call +49 30 1234567! Or 12345."


@pytest.fixture(scope="module")
def tokenizer():
    learned = train_tokenizer([TEXT, "Write to ⟨1⟩."], vocab_size=300, min_frequency=1, show_progress=False)
    return with_placeholders(learned, 9)


def client_of(tokenizer, **options):
    translator = Translator.from_backend(CopyingBackend(**options), tokenizer)
    return TestClient(make_app(make_service(translator=translator)), raise_server_exceptions=False)


def test_every_route_gives_the_values_back(tokenizer):
    with client_of(tokenizer) as client:

        def ask(path, **query):
            answer = client.post(path, json={**LANGUAGES, **query})
            assert answer.status_code == 200, answer.text
            return answer.json()

        assert ask("/translate", q=TEXT) == {"translatedText": TEXT}
        assert ask("/translate", q=TEXT, alternatives=1)["alternatives"] == [TEXT]
        html = "<p>Write to <a href='mailto:x'>info@example.com</a> before <b>10:30</b>.</p><p>12345</p>"
        assert ask("/translate", q=html, format="html") == {"translatedText": html}
        inside = "Write to info@<b>example</b>.com before 10:30."
        assert ask("/translate", q=inside, format="html") == {"translatedText": inside}
        sentences = ask("/sentences", q=TEXT, alternatives=2)["sentences"]
        assert [[each["text"] for each in sentence["translations"]] for sentence in sentences] == [
            ["Write to info@example.com before 10:30."],
            ["Call +49 30 1234567!"],
            ["Or 12345."],
        ]
        assert "not_copied" not in sentences[0]["translations"][0]
        for prefix in ("Write to", "Write to info@example.com", "Write to info@example.com before 10:30"):
            (other,) = ask("/alternatives", q=TEXT[:39], prefix=prefix)["alternatives"]
            assert other["text"] == TEXT[:39]
        attention = ask("/attention", q="See 10:30.", translation="See 10:30.", heads=True)
        assert attention["target"] == ["See", "10", ":", "30", "."]
        assert attention["alignment"] == "0-0 1-1 2-2 3-3 4-4"


def test_a_loss_is_told(tokenizer):
    with client_of(tokenizer, changed=without("⟨1⟩", ":")(tokenizer)) as client:
        texts = ["Before 10:30.", "A dog."]
        answer = client.post("/translate", json={**LANGUAGES, "q": texts}).json()
        assert answer == {"translatedText": ["Before 1030.", "A dog."], "not_copied": [["10:30"], []]}
        (sentence,) = client.post("/sentences", json={**LANGUAGES, "q": texts[0]}).json()["sentences"]
        assert sentence["translations"][0]["not_copied"] == ["10:30"]
