import asyncio
import json
import re
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from vanilla_transformer import Translator
from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.hub.saved_files import read_card
from vanilla_transformer.serving.access_limits import ApiKeys, Limits
from vanilla_transformer.serving.routes import Service, make_app
from vanilla_transformer.serving.served_models import Catalogue, ServedModel, public_name
from vanilla_transformer.translation.attention_maps import attention_data, maps_of

from .conftest import BUNDLED, UpperCaseTranslator, make_service, running


QUERY = {"q": "a dog", "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def client():
    """A client of a server with few limits. It sees what a client over the network sees."""
    with client_of(make_service(max_characters=100, max_texts=3, max_sentence_tokens=10)) as client:
        yield client


def client_of(service, **options):
    return TestClient(make_app(service, **options), raise_server_exceptions=False)


def test_parameters_come_as_json_form_or_query(client):
    answers = [
        client.post("/translate", json=QUERY),
        client.post("/translate", content=json.dumps(QUERY)),
        client.post("/translate", data=QUERY),
        client.post("/translate", params=QUERY),
        client.post("/translate", params={"q": "a dog"}, json={"source": "en", "target": "de"}),
        client.post(
            "/translate",
            content="".join(
                f'--x\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in QUERY.items()
            )
            + "--x--\r\n",
            headers={"Content-Type": "multipart/form-data; boundary=x"},
        ),
    ]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(200, {"translatedText": "A DOG"})] * 6


def test_lists_alternatives_and_formats(client):
    def translate(**parameters):
        return client.post("/translate", json={**QUERY, **parameters}).json()

    assert translate(q=["a", "", "b\nc"]) == {"translatedText": ["A", "", "B\nC"]}
    assert client.post("/translate?q=a&q=b&source=en&target=de").json() == {"translatedText": ["A", "B"]}
    assert translate(alternatives=2) == {"translatedText": "A DOG", "alternatives": ["A DOG!", "A DOG!!"]}
    assert translate(q=["a"], alternatives=1) == {"translatedText": ["A"], "alternatives": [["A!"]]}
    assert translate(q="<p>a <b>dog</b></p>", format="html") == {"translatedText": "<p>A <b>DOG</b></p>"}
    assert translate(q="<b>", format="text") == {"translatedText": "<B>"}
    assumed = {"language": "en", "confidence": 0.0}  # the only language that the server reads
    assert translate(source="auto", model="upper") == {"translatedText": "A DOG", "detectedLanguage": assumed}


# --- routes beyond LibreTranslate's ---


@pytest.fixture(scope="module")
def tiny(bundled):
    """A client of a server with the bundled model."""
    with client_of(make_service(translator=bundled, name="tiny", max_sentence_tokens=60)) as client:
        yield client


def test_sentences_have_their_translations_and_join_to_the_text(tiny, bundled):
    text = "  A man is sleeping. A dog runs in the snow.\n\nTwo girls play football. 🐕\n"
    answer = tiny.post("/sentences", json={**QUERY, "q": text, "alternatives": 2, "num_beams": 3}).json()
    joined = "".join(each["before"] + each["translations"][0]["text"] for each in answer["sentences"])
    assert (
        joined + answer["after"]
        == tiny.post("/translate", json={**QUERY, "q": text, "num_beams": 3}).json()["translatedText"]
    )
    assert answer["sentences"][1]["source"] == "A dog runs in the snow."
    expected = next(bundled.translate(["A dog runs in the snow."], n_best=3, num_beams=3))
    translations = answer["sentences"][1]["translations"]
    assert [each["text"] for each in translations] == [best.text for best in expected]
    assert [each["score"] for each in translations] == pytest.approx([best.score for best in expected], abs=1e-4)
    assert translations[0]["words"] == re.findall(r"\w+|[^\w\s]", translations[0]["text"])
    assert tiny.post("/sentences", json={**QUERY, "q": " \n"}).json() == {"sentences": [], "after": " \n"}
    assert tiny.post("/sentences", json={**QUERY, "q": ["a"]}).status_code == 400


def test_confidence_is_opt_in_and_that_of_the_translator(tiny, bundled):
    texts = ["A dog runs. A man sleeps.", "The bank lowered its interest rates."]
    assert "confidence" not in tiny.post("/sentences", json={**QUERY, "q": texts[0]}).text
    (answer,) = tiny.post("/sentences", json={**QUERY, "q": texts[1], "confidence": True}).json()["sentences"]
    (best,) = next(bundled.translate(texts[1:], confidence=True))
    shown = answer["translations"][0]
    assert shown["word_confidence"] == pytest.approx([word.confidence for word in best.words], abs=1e-4)
    assert len(shown["word_confidence"]) == len(shown["words"])
    assert (shown["confidence"], shown["calibrated"]) == (pytest.approx(best.confidence, abs=1e-4), best.is_calibrated)
    answer = tiny.post("/translate", json={**QUERY, "q": texts, "confidence": True}).json()
    (whole,) = next(bundled.translate(texts[:1], split_sentences=True, confidence=True))
    assert answer["confidence"] == pytest.approx([whole.confidence, best.confidence], abs=1e-4)
    assert answer["calibrated"] == best.is_calibrated
    one = tiny.post(
        "/translate", json={**QUERY, "q": f"<b>{texts[1]}</b>", "format": "html", "confidence": True}
    ).json()
    assert one["confidence"] == pytest.approx(best.confidence, abs=1e-4)


def test_alternatives_start_with_the_prefix_and_go_on_with_the_most_probable_words(tiny, bundled):
    sentence, prefix = "A man in a red shirt is sleeping.", "Ein Mann in einem roten"
    query = {**QUERY, "q": sentence, "prefix": prefix, "alternatives": 8}
    answer = tiny.post("/alternatives", json=query).json()["alternatives"]
    assert [each["word"] for each in answer[:3]] == ["Hemd", "Oberteil", "T-Shirt"]
    assert all(each["text"].startswith(f"{prefix} {each['word']}") for each in answer)  # never "rotenShirt"
    assert len({each["word"] for each in answer}) == len(answer)
    probabilities = [each["probability"] for each in answer]
    assert probabilities == sorted(probabilities, reverse=True)
    # The oracle: the model's own distribution after the prefix.
    ids = bundled.target_tokenizer(text_target=prefix, add_special_tokens=False)["input_ids"]
    read = torch.tensor([[bundled.model.config.decoder_start_token_id, *ids]])
    encoded = bundled.tokenizer([sentence], return_tensors="pt")
    with torch.no_grad():
        logits = bundled.model(**encoded, decoder_input_ids=read).logits[0, -1]
    assert probabilities[0] == pytest.approx(logits.softmax(-1).max().item(), abs=1e-3)
    # The rest is what the search writes after the chosen word.
    second = next(bundled.translate([sentence], prefix=f"{prefix} Oberteil"))[0].text
    assert answer[1]["text"] == second
    first = tiny.post("/alternatives", json={**QUERY, "q": sentence}).json()["alternatives"]
    assert first[0]["text"] == bundled(sentence)


def test_attention_is_that_of_the_model(tiny, bundled):
    sentence = "A dog runs."
    query = {**QUERY, "q": sentence, "translation": bundled(sentence)}
    answer = tiny.post("/attention", json=query).json()
    hypothesis = bundled.attend(sentence, bundled(sentence))
    assert answer == attention_data(sentence, hypothesis, heads=False)
    with_heads = tiny.post("/attention", json={**query, "heads": True}).json()
    assert [maps["kind"] for maps in with_heads["heads"]] == [maps.kind for maps in maps_of(hypothesis)]
    # The longest sentence, and a translation that is longer than a sentence may be, as the model's own can be.
    longest = {"q": "a " * 58 + ".", "translation": "ein " * 110}
    assert tiny.post("/attention", json={**query, **longest}).status_code == 200


@pytest.mark.parametrize("heads", [False, True])
def test_attention_of_an_empty_text_is_an_answer_with_the_fast_engine(bundled, heads):
    """CTranslate2 has no weights for it."""
    pytest.importorskip("ctranslate2")
    service = make_service(translator=Translator.from_pretrained(BUNDLED))
    with client_of(service) as client:
        for text, translation in (("", ""), (" ", ""), ("", "Ein Hund"), ("A dog", "")):
            query = {**QUERY, "q": text, "translation": translation, "heads": heads}
            answer = client.post("/attention", json=query)
            assert answer.status_code == 200
            expected = attention_data(text, bundled.attend(text, translation), heads=heads)
            assert answer.json()["target"] == expected["target"]
            assert np.allclose(answer.json()["weights"], expected["weights"], atol=2e-4)


def test_a_tag_in_the_text_agrees_with_the_request_or_is_refused(tiny, bundled):
    assert tiny.post("/translate", json={**QUERY, "q": ">>de<< A dog."}).json() == {
        "translatedText": bundled("A dog.")
    }
    for path, more in (("/translate", {}), ("/attention", {"translation": "Ein Hund"})):
        refused = tiny.post(path, json={**QUERY, "q": ">>fr<< A dog.", **more})
        assert refused.status_code == 400
        assert "'fr' is not a language of the model" in refused.json()["error"]


def test_a_prefix_that_leaves_no_room_is_refused():
    """CTranslate2 has 1,024 positions for the bundled model."""
    limits = Limits(max_sentence_tokens=2000)
    model = ServedModel.from_pretrained(BUNDLED, loading={"backend": "ctranslate2"}, limits=limits)
    with client_of(Service(Catalogue([model]), limits)) as client:
        answers = [client.post("/alternatives", json={**QUERY, "prefix": "ein " * n}) for n in (1016, 1022, 1024)]
    assert [answer.status_code for answer in answers] == [413] * 3


@pytest.mark.parametrize(
    ("path", "parameters", "status", "words"),
    [
        ("/attention", {}, 400, "translation: field required"),
        ("/attention", {"q": "b" * 20_000, "translation": "b"}, 413, "q has 20,000 characters"),
        ("/attention", {"translation": "b" * 200_000}, 413, "The body has more than"),
        ("/attention", {"translation": "ein " * 200}, 413, "The translation that begins with"),
        ("/attention", {"q": "a " * 100, "translation": "b"}, 413, "The sentence that begins with"),
        ("/attention", {"q": "a", "translation": "b", "model": "x"}, 400, "There is no model 'x'"),
        ("/alternatives", {"prefix": "ein " * 60}, 413, "The translation that begins with"),
        ("/alternatives", {"prefix": "\ud800"}, 400, "prefix: "),
        ("/translate?q=%FF", {}, 400, "The address is not UTF-8"),
        ("/alternatives", {"alternatives": 17}, 400, "alternatives: "),
        ("/alternatives", {"alternatives": 0}, 400, "alternatives: "),
        ("/sentences", {"alternatives": 5}, 400, "alternatives=5 is too many: a beam of 5 finds 4."),
    ],
)
def test_every_route_is_bounded(tiny, path, parameters, status, words):
    answer = tiny.post(path, content=json.dumps({**QUERY, **parameters}))
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert words in answer.json()["error"]


def test_every_route_ends_in_time_and_needs_the_key():
    queries = {"/sentences": QUERY, "/alternatives": QUERY, "/attention": {**QUERY, "translation": "A"}}
    slow = UpperCaseTranslator(seconds=0.3)
    slow.attend = lambda *pair: time.sleep(0.3)
    with client_of(make_service(translator=slow, max_seconds=0.05)) as client:
        assert [client.post(path, json=query).status_code for path, query in queries.items()] == [503] * 3
    with client_of(make_service(keys=ApiKeys(["secret"]))) as client:
        assert [client.post(path, json=query).status_code for path, query in queries.items()] == [403] * 3


def test_models_tell_what_their_card_says(tmp_path):
    model = ServedModel.from_pretrained(BUNDLED, limits=Limits(max_characters=50))
    with client_of(Service(Catalogue([model]), model.limits)) as client:
        answer = client.get("/models").json()
    (shown,) = answer["models"]
    assert (shown["name"], shown["directions"]) == ("multi30k-en-de-tiny", [{"source": "en", "target": "de"}])
    assert shown["description"].startswith("Image captions")
    assert len(shown["examples"]) == 5
    assert (shown["num_beams"], shown["length_penalty"]) == (5, 1.6)
    assert (answer["limits"]["max_characters"], answer["key_required"]) == (50, False)
    assert read_card(tmp_path)["examples"] == []
    (tmp_path / "README.md").write_text("---\nwidget: 7\n---\n")
    assert read_card(tmp_path) == {}  # and a warning, not an end


# --- errors ---


@pytest.mark.parametrize(
    ("parameters", "status", "words"),
    [
        ({"q": None}, 400, "q: "),
        ({"q": 1}, 400, "q: "),
        ({"q": ["a", 1]}, 400, "q: "),
        ({"source": "fr"}, 400, "'fr' is not a language of this server: choose one of en, de."),
        ({"source": "de", "target": "en"}, 400, "source='de' and target='en' are not offered: the server translates"),
        ({"model": "/etc"}, 400, "There is no model '/etc': choose one of upper."),
        ({"format": "pdf"}, 400, "format: "),
        ({"alternatives": -1}, 400, "alternatives: "),
        ({"alternatives": 4}, 400, "alternatives=4 is too many: a beam of 4 finds 3."),
        ({"num_beams": 1000}, 400, "num_beams: "),
        ({"q": "a" * 101}, 413, "q has 101 characters: send at most 100 at once."),
        ({"q": ["a"] * 4}, 413, "q has 4 texts: send at most 3 at once."),
        ({"q": "a " * 15}, 413, "has 16 tokens: split it into sentences of at most 10."),
        ({"q": "unlucky"}, 500, "The server failed to answer."),
    ],
)
def test_an_error_is_a_sentence_with_its_status(client, parameters, status, words):
    answer = client.post("/translate", json={**QUERY, **parameters})
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert words in answer.json()["error"]
    assert "passwd" not in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 10_000, "application/json", 400),
        (b"[1]", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b'{"q": "\\ud800", "source": "en", "target": "de"}', "application/json", 400),
        (b"x", "multipart/form-data", 400),
        (b"x", "multipart/form-data; boundary=y", 400),
        (
            b'--y\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\nx\r\n--y--',
            "multipart/form-data; boundary=y",
            400,
        ),
        (b" " * 20_000, "application/json", 413),
        (b"source=en&target=de&q=%FF", "application/x-www-form-urlencoded", 400),
        (b"source=en&target=de&q=\xff", "application/x-www-form-urlencoded", 400),
        (b"q=a&" * 1001, "application/x-www-form-urlencoded", 400),
        (
            b'--y\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--y--',
            "multipart/form-data; boundary=y",
            400,
        ),
    ],
)
def test_a_body_that_is_no_request_is_refused(client, body, content_type, status):
    answer = client.post("/translate", content=body, headers={"Content-Type": content_type})
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    chunked = client.post("/translate", content=iter([body]), headers={"Content-Type": content_type})
    assert chunked.status_code == status


def test_other_routes(client):
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    described = make_service(model_fields={"description": "Upper case. Nothing else."})
    with client_of(described) as other:
        english, german = other.get("/languages").json()
        assert english["description"] == "Upper case. Nothing else."
        assert "description" not in german
    assert client.get("/health").json() == {"status": "ok"}
    assert client.post("/detect", data={"q": "Wo ist der Bahnhof?"}).json()[0]["language"] == "de"
    assert client.post("/detect", data={"q": "Hallo"}).json() == [{"language": "en", "confidence": 0.0}]
    client.post("/translate", json=QUERY)
    metrics = client.get("/metrics").text
    assert 'vanilla_requests_total{path="/translate",status="200"}' in metrics
    assert "vanilla_batch_sentences_count" in metrics
    documentation = client.get("/openapi.json").json()["paths"]
    ours = ["/models", "/sentences", "/alternatives", "/attention"]
    assert list(documentation) == ["/translate", "/detect", "/languages", *ours, "/health", "/metrics"]
    assert "alternatives" in str(documentation["/translate"]["post"]["requestBody"])
    for path, method in (("/translate", "GET"), ("/languages", "POST")):
        refused = client.request(method, path)
        allowed = refused.headers["Allow"]
        assert (refused.status_code, refused.json()) == (405, {"error": f"This address takes {allowed} only."})
    assert client.get("/nowhere").json() == {"error": "There is nothing at this address: see /docs."}


def test_no_other_origin_may_read_answers_unless_it_is_allowed(client):
    headers = {"Origin": "http://elsewhere.example"}
    assert "access-control-allow-origin" not in client.post("/translate", json=QUERY, headers=headers).headers
    with client_of(make_service(), cors_origins=["http://elsewhere.example"]) as open_client:
        allowed = open_client.post("/translate", json=QUERY, headers=headers).headers["access-control-allow-origin"]
    assert allowed == "http://elsewhere.example"


def test_keys_and_rates(monkeypatch):
    with client_of(make_service(keys=ApiKeys(["secret"]), requests_per_minute=2)) as client:
        answers = [client.post("/translate", json={**QUERY, "api_key": "secret"}) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[-1].headers["Retry-After"]) > 0
    with client_of(make_service(keys=ApiKeys(["secret"]), requests_per_minute=3)) as client:
        statuses = [client.post("/translate", data={**QUERY, **key}).status_code for key in ({}, {"api_key": "x"})]
        assert statuses == [403, 403]
        assert client.post("/detect", data={"q": "x"}).status_code == 403
        # Wrong keys have used up the minute: who guesses keys is slowed down.
        assert client.post("/translate", json={**QUERY, "api_key": "secret"}).status_code == 429


def test_several_models_are_chosen_by_language_and_name():
    models = [
        ServedModel(name, UpperCaseTranslator(), Languages(*pair))
        for name, pair in (("one", ("en", "de")), ("two", ("en", "de")), ("back", ("de", "en")))
    ]
    catalogue = Catalogue(models)
    with client_of(Service(catalogue)) as client:
        assert client.post("/translate", json={**QUERY, "source": "de", "target": "en"}).status_code == 200
        assert client.post("/translate", json={**QUERY, "model": "back"}).status_code == 400
        texts = ["Wo ist der Bahnhof?", "Where is the station?", "Hotel", "<b>Where</b> is it now?"]
        auto = client.post("/translate", json={"q": texts, "source": "auto", "target": "de", "format": "html"}).json()
        assert auto["translatedText"] == [texts[0], texts[1].upper(), "HOTEL", "<b>WHERE</b> IS IT NOW?"]
        assert [each["language"] for each in auto["detectedLanguage"]] == ["de", "en", "en", "en"]
        assert [each["confidence"] > 50 for each in auto["detectedLanguage"]] == [True, True, False, True]
        assert auto["unchanged"] == [True, False, False, False]
        given = client.post("/translate", json={"q": "Hotel", "source": "de", "target": "de-AT"}).json()
        assert given == {"translatedText": "Hotel", "unchanged": True}
        whole = client.post("/sentences", json={"q": "Ich bin hier. Ja.", "source": "auto", "target": "de"}).json()
        assert whole["sentences"][0]["translations"][0]["text"] == "Ich bin hier. Ja."
        assert (whole["detectedLanguage"]["language"], whole["unchanged"]) == ("de", True)
        for route, more in (("/alternatives", {}), ("/attention", {"translation": "Hier."})):
            refused = client.post(route, json={"q": "Ich bin hier.", "source": "auto", "target": "de", **more})
            assert refused.json()["error"].startswith("The text is in the target language")
        unknown = client.post("/translate", json={**QUERY, "target": "german"}).json()
        assert (
            unknown["error"] == "'german' is not a language of this server (did you mean 'de'?): choose one of en, de."
        )
        assert client.get("/languages").json()[0]["targets"] == ["de"]
    assert catalogue.find(Languages("en", "de")).name == "one"
    assert catalogue.find(Languages("en", "de"), "two").name == "two"
    with pytest.raises(ValueError, match="same name"):
        Catalogue([models[0], models[0]])
    with pytest.raises(ValueError, match="does not record its languages"):
        ServedModel("m", UpperCaseTranslator(), Languages())
    all_at_once = UpperCaseTranslator()
    all_at_once.model.is_autoregressive = False
    with pytest.raises(ValueError, match="m writes all tokens at once, and the server offers beams and prefixes"):
        ServedModel("m", all_at_once, Languages("en", "de"))


def test_a_model_with_several_directions_is_told_which():
    given = []

    class ManyDirections(UpperCaseTranslator):
        def translate(self, texts, *, source_lang, target_lang, **options):
            given.append((source_lang, target_lang))
            return super().translate(texts, **options)

        def attend(self, source, target, *, source_lang, target_lang):
            given.append((source_lang, target_lang))
            return super().attend(source, target)

    translator = ManyDirections()
    translator.directions = tuple(map(Languages.parse, ("en-de", "de-en", "en-fr")))
    with client_of(Service(Catalogue([ServedModel("many", translator, Languages())]))) as client:
        languages = {each["code"]: each["targets"] for each in client.get("/languages").json()}
        assert languages == {"en": ["de", "fr"], "de": ["en"], "fr": []}
        assert client.post("/translate", json={**QUERY, "source": "en", "target": "fr"}).status_code == 200
        refused = client.post("/translate", json={**QUERY, "source": "de", "target": "fr"})
        assert refused.status_code == 400
        assert refused.json()["error"].endswith("the server translates en-de, de-en, en-fr.")
        for route, more in (("sentences", {}), ("alternatives", {}), ("attention", {"translation": "A DOG"})):
            query = {"q": "a dog", "source": "en", "target": "fr", **more}
            assert client.post(f"/{route}", json=query).status_code == 200, route
        assert set(given) == {("en", "fr")}
        assert len(given) == 5, "alternatives search twice"
        german = {"q": "Wo ist der Bahnhof?", "source": "auto", "target": "en"}
        assert client.post("/translate", json=german).json()["detectedLanguage"]["language"] == "de"
    assert given[5:] == [("de", "en")]


def test_names_hold_no_folders(tmp_path):
    (tmp_path / "mine" / "model").mkdir(parents=True)
    assert public_name(tmp_path / "mine") == public_name(tmp_path / "mine" / "model") == "mine"
    assert public_name("user/model-on-the-hub") == "user/model-on-the-hub"


def test_a_slow_engine_answers_503_and_the_queue_stays_bounded():
    with client_of(make_service(translator=UpperCaseTranslator(seconds=0.3), max_seconds=0.05)) as client:
        late = client.post("/translate", json=QUERY)
        assert (late.status_code, late.json()) == (
            503,
            {"error": "There was no answer within 0.05 seconds: try less text."},
        )
        assert late.headers["Retry-After"] == "1"
    with client_of(make_service(max_waiting=1)) as client:
        assert client.post("/translate", json={**QUERY, "q": ["a", "b"]}).status_code == 503


def test_a_client_that_goes_away_takes_its_sentences_along():
    """Calls the application as a server does, and disconnects while the engine is busy."""
    service = make_service(translator=UpperCaseTranslator(seconds=0.2))
    app, body = make_app(service), json.dumps({**QUERY, "q": "first"}).encode()
    scope = {"type": "http", "method": "POST", "path": "/translate", "headers": [], "query_string": b""}

    async def test():
        async with service.running():
            model = service.catalogue.models[0]
            busy = asyncio.create_task(model.translate(["busy"]))
            await asyncio.sleep(0.05)
            messages = iter([{"type": "http.request", "body": body}])
            disconnect = asyncio.Event()

            async def receive():
                if message := next(messages, None):
                    return message
                await disconnect.wait()
                return {"type": "http.disconnect"}

            async def send(message):
                pass

            request = asyncio.create_task(app(scope, receive, send))
            while not model.queue.waiting:
                await asyncio.sleep(0.001)
            disconnect.set()
            await request
            assert model.queue.waiting == 0
            await busy
            return model.translator.batches

    assert asyncio.run(test()) == [["busy"]]
    assert 'status="499"' in service.metrics.text().decode()


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary().map(repr),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    [
        *("q", "source", "target", "format", "alternatives", "api_key", "model", "num_beams"),
        "prefix",
        "translation",
        "x",
    ]
)
bodies = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(names, values).map(lambda value: json.dumps({**QUERY, **value}).encode()),
)
content_types = st.sampled_from(
    ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "text/plain", ""]
)
queries = st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4)


@settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["/translate", "/detect", "/sentences", "/alternatives", "/attention"]),
    bodies,
    content_types,
    queries,
)
def test_a_thousand_bad_inputs_get_their_answer(client, path, body, content_type, query):
    answer = client.post(path, content=body, params=query, headers={"Content-Type": content_type})
    if answer.status_code == 200:
        fields = answer.json()[0] if path == "/detect" else answer.json()
        assert {"translatedText", "sentences", "alternatives", "weights", "language"} & set(fields)
    else:
        assert answer.status_code in (400, 413)
        assert list(answer.json()) == ["error"]


@pytest.mark.slow
def test_requests_made_from_the_schema_get_their_answer():
    """Schemathesis makes requests that follow the OpenAPI schema, and requests that do not, for each route."""
    schemathesis = pytest.importorskip("schemathesis", reason="make browser installs it")
    from schemathesis import checks

    as_documented = [
        *(checks.not_a_server_error, checks.status_code_conformance),
        *(checks.content_type_conformance, checks.response_schema_conformance),
    ]
    service, answered = make_service(), set()
    with running(make_app(service), service.limits) as address:
        for result in schemathesis.openapi.from_url(f"{address}/openapi.json").get_all_operations():
            operation, modes = result.ok(), schemathesis.GenerationMode
            for mode in modes if operation.body else [modes.POSITIVE]:  # without parameters, nothing can be wrong

                @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), database=None)
                @given(operation.as_strategy(generation_mode=mode))
                def check(case):
                    if isinstance(case.body, dict) and "source" in case.body:
                        case.body |= {"source": "en", "target": "de"}
                        case.body.pop("model", None)
                    answer = case.call_and_validate(checks=as_documented)
                    answered.add((case.path, answer.status_code))

                check()
    translating = {"/translate", "/sentences", "/alternatives", "/attention"}
    assert {(path, 200) for path in translating} <= answered
    assert {status for _, status in answered} <= {200, 400, 405, 413}


def test_the_server_is_well_afterwards(client):
    assert client.post("/translate", json=QUERY).json() == {"translatedText": "A DOG"}
    assert "vanilla_waiting_sentences 0.0" in client.get("/metrics").text
