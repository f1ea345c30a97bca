import io
import json
from datetime import datetime

from starlette.testclient import TestClient

from vanilla_transformer.serving.access_limits import ApiKeys
from vanilla_transformer.serving.routes import make_app

from .conftest import make_service


def test_the_access_log_has_a_line_for_each_request_and_no_text_or_key():
    log, query = io.StringIO(), {"q": "secret", "source": "en", "target": "de", "api_key": "secret"}
    app = make_app(make_service(keys=ApiKeys(["secret"])), cors_origins=["*"], access_log=log)
    with TestClient(app, raise_server_exceptions=False) as client:
        client.post("/translate", json=query)
        client.post("/translate", params={**query, "q": "unlucky"})
        client.get("/languages?q=secret")
        client.get("/secret")
        client.request("SECRET", "/style.css?secret")
        client.options("/secret", headers={"Origin": "secret", "Access-Control-Request-Method": "GET"})
    assert "secret" not in log.getvalue().lower()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/translate", 200),
        ("POST", "/translate", 500),
        ("GET", "/languages", 200),
        ("GET", None, 404),
        (None, "/style.css", 405),
        ("OPTIONS", None, 200),
    ]
    assert all(line["seconds"] >= 0 and datetime.fromisoformat(line["time"]).tzinfo for line in lines)
