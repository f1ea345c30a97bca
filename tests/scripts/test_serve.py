import pytest

from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.scripts import serve
from vanilla_transformer.serving import server as server_module


@pytest.fixture
def served(monkeypatch):
    """What would be served: (service, options)."""
    calls = []
    monkeypatch.setattr(server_module, "serve", lambda service, **options: calls.append((service, options)))
    return calls


def test_options_reach_the_server(model_folder, served, tmp_path, monkeypatch):
    (tmp_path / "keys").write_text("secret\n")
    limits = ["--max_characters", "50", "--max_waiting", "7", "--batch_milliseconds", "2", "--batch_sentences", "9"]
    decoding = ["--num_beams", "2", "--length_penalty", "0.3"]
    where = ["--port", "1234", "--page", "false", "--cors_origins", "*", "--api_keys", str(tmp_path / "keys")]
    more = ["--trusted_proxies", "10.0.0.1", "10.1.0.0/16", "--access_log", "log"]
    serve.main(["--model", str(model_folder), "--languages", "en-de", *limits, *decoding, *where, *more])
    ((service, options),) = served
    site = {"host": "127.0.0.1", "port": 1234, "page": False, "cors_origins": ["*"]}
    assert options == {**site, "trusted_proxies": ["10.0.0.1", "10.1.0.0/16"], "access_log": "log"}
    (model,) = service.catalogue.models
    assert (model.name, model.languages) == (model_folder.name, Languages("en", "de"))
    assert (model.limits.max_characters, model.limits.max_waiting) == (50, 7)
    assert (model.batching.seconds, model.batching.max_sentences) == (0.002, 9)
    assert (model.defaults["num_beams"], model.defaults["length_penalty"]) == (2, 0.3)
    assert service.keys.accept("secret")
    assert not service.keys.accept("")


def test_a_family_is_served_as_its_models(served):
    serve.main(["--model", "everyday"])
    ((service, _),) = served
    assert [model.name for model in service.catalogue.models] == [
        "everyday-en-de",
        "everyday-en-fr-es",
        "everyday-en-zh",
        "everyday-to-en",
    ]
    assert service.catalogue.targets("en") == ["de", "fr", "es", "zh"]
    assert service.catalogue.targets("zh") == ["en"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--languages", "en-de", "de-en"], "--languages names 2 pairs for 1 models"),
        (["--languages", "en"], "--languages 'en' must be two languages"),
        (["--max_seconds", "0"], "max_seconds=0.0 must be more than 0"),
        (["--max_seconds", "inf"], "max_seconds=inf is no number that can be computed with"),
        (["--batch_sentences", "0"], "batch_sentences=0 must be at least 1"),
        (["--batch_milliseconds", "60001"], "batch_milliseconds=60001 must be a number from 0 to 60,000"),
        (["--batch_milliseconds", "nan"], "batch_milliseconds=nan is no number that can be computed with"),
        (["--batch_milliseconds", "-1"], "batch_milliseconds=-1 must be a number"),
        (["--languages", "de-en"], "source_lang is 'de'"),
    ],
)
def test_mistakes_get_a_sentence(model_folder, served, arguments, message):
    with pytest.raises(SystemExit, match=message):
        serve.main(["--model", str(model_folder), *arguments])
    assert not served
