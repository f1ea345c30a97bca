"""Every answer keeps to its own origin, and the page is a static client of the API."""

import re

import pytest
from starlette.testclient import TestClient

from vanilla_transformer.serving.access_limits import ApiKeys
from vanilla_transformer.serving.routes import make_app
from vanilla_transformer.serving.standalone_page import web_file
from vanilla_transformer.serving.web_pages import FILES

from .conftest import make_service


FOREIGN = {"Origin": "http://elsewhere.example", "Cookie": "a=b"}


@pytest.fixture(scope="module")
def client():
    with TestClient(make_app(make_service()), raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize("path", [*FILES, "/docs", "/openapi.json", "/languages", "/nowhere", "/" + "a" * 5000])
def test_every_answer_has_strict_headers_and_no_foreign_origin_may_read_it(client, path):
    answer = client.get(path, headers=FOREIGN)
    assert answer.status_code == (200 if len(path) < 100 and path != "/nowhere" else 404)
    policy = dict(rule.split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {value for name, value in policy.items() if name != "default-src"} <= {"'self'", "'none'"}
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_errors_have_the_headers_too(client):
    query = {"q": "unlucky", "source": "en", "target": "de"}
    failure = client.post("/translate", json=query)
    assert (failure.status_code, failure.headers["X-Content-Type-Options"]) == (500, "nosniff")


def test_a_refused_preflight_is_json_too():
    asked = {"Access-Control-Request-Method": "POST", "Origin": "http://third.example"}
    with TestClient(make_app(make_service(), cors_origins=["http://elsewhere.example"])) as client:
        refused = client.options("/translate", headers=asked)
        assert (refused.status_code, list(refused.json()), refused.headers["Vary"]) == (400, ["error"], "Origin")
        allowed = client.options("/translate", headers={**asked, "Origin": "http://elsewhere.example"})
        assert allowed.status_code == 200


def test_an_origin_is_opened_by_name_only():
    with TestClient(make_app(make_service(), cors_origins=["http://elsewhere.example"])) as client:
        for _ in range(2):
            answer = client.get("/style.css", headers=FOREIGN)
            assert answer.headers["Access-Control-Allow-Origin"] == "http://elsewhere.example"
            assert answer.headers["Vary"] == "Origin"  # once, also with the second answer
            assert "Access-Control-Allow-Credentials" not in answer.headers
        other = client.get("/style.css", headers={"Origin": "http://third.example"})
        assert "Access-Control-Allow-Origin" not in other.headers


@pytest.mark.parametrize(
    "path", ["file=/etc/passwd", "proxy=http://127.0.0.1", "upload", "heartbeat", "%2e%2e/server.py"]
)
def test_no_address_leads_to_other_files_or_hosts(client, path):
    """Routes that web frameworks bring along, and ways out of the folder of the page."""
    for address in (f"/{path}", f"/gradio_api/{path}", f"/web/{path}"):
        for answer in (client.get(address), client.post(address, content=b"x")):
            assert (answer.status_code, list(answer.json())) == (404, ["error"])


@pytest.mark.parametrize("path", ["/", "/docs", "/languages", "/models", "/health", "/metrics"])
def test_head_is_get_without_a_body(client, path):
    head = client.head(path)
    assert (head.status_code, head.headers["content-type"]) == (200, client.get(path).headers["content-type"])


def test_pages_have_no_inline_script_or_style_and_name_no_foreign_host(client):
    for page in (client.get("/").text, client.get("/docs").text):
        assert not re.search(r"<script(?![^>]* src=)|<style|\bstyle=|\bon\w+=", page)
        without_links = re.sub(r'<a href="[^"]*"', "<a", page)  # a link loads nothing until it is followed
        assert not re.search(r"https?://|//\w", without_links)
    scripts = web_file("translate.js") + web_file("drawing.js")
    assert "innerHTML" not in scripts
    assert set(re.findall(r"https?://[\w./]+", scripts)) == {"http://www.w3.org/2000/svg"}


def test_the_documentation_lists_all_routes_and_parameters(client):
    schema, page = client.get("/openapi.json").json(), client.get("/docs").text
    for path, methods in schema["paths"].items():
        assert path in page
        for route in methods.values():
            content = route.get("requestBody", {"content": {}})["content"]
            for body in content.values():
                assert all(f"<code>{name}</code>" in page for name in body["schema"]["properties"])


def test_without_the_page_the_api_remains():
    with TestClient(make_app(make_service(keys=ApiKeys(["secret"])), page=False)) as client:
        assert client.get("/").status_code == 404
        assert client.get("/models").json()["key_required"] is True
