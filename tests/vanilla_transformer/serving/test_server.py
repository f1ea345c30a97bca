"""The server over real sockets: stock clients, faults, load, and the end."""

import asyncio
import json
import re
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.parse import urlsplit

import pytest
import requests
from aiohttp import ClientError, ClientSession
from deep_translator import LibreTranslator
from deep_translator.exceptions import AuthorizationException
from libretranslatepy import LibreTranslateAPI

from vanilla_transformer import Translator
from vanilla_transformer.serving import server as server_module
from vanilla_transformer.serving.access_limits import ApiKeys, Limits
from vanilla_transformer.serving.routes import make_app

from .conftest import BUNDLED, UpperCaseTranslator, make_service, process, resident, running


TEXT = "A man is sleeping. A dog runs in the snow.\n\nTwo girls play football."


# --- clients from PyPI ---


@pytest.fixture(scope="module")
def address(bundled):
    """A server with the page and the bundled model."""
    service = make_service(translator=bundled, name="tiny")
    with running(make_app(service), service.limits) as address:
        yield address


def test_libretranslatepy_translates(address, bundled):
    client = LibreTranslateAPI(address)
    assert client.translate("A dog runs in the snow.", "en", "de") == bundled("A dog runs in the snow.")
    first, second, third = bundled(["A man is sleeping.", "A dog runs in the snow.", "Two girls play football."])
    assert client.translate(TEXT, "en", "de") == f"{first} {second}\n\n{third}"
    assert [language["code"] for language in client.languages()] == ["en", "de"]


def test_deep_translator_translates(address, bundled):
    client = LibreTranslator("en", "de", api_key="any", custom_url=f"{address}/")
    assert client.translate("A dog runs in the snow.") == bundled("A dog runs in the snow.")
    texts = ["A man is sleeping.", "Two girls play football."]
    assert client.translate_batch(texts) == bundled(texts)


def test_deep_translator_is_told_about_a_wrong_key():
    with running(make_app(make_service(keys=ApiKeys(["right"])))) as address:
        assert LibreTranslator("en", "de", api_key="right", custom_url=f"{address}/").translate("a") == "A"
        with pytest.raises(AuthorizationException):
            LibreTranslator("en", "de", api_key="wrong", custom_url=f"{address}/").translate("a")
        assert LibreTranslateAPI(address, api_key="right").translate("a", "en", "de") == "A"


# --- faults ---


def send(address, data, *, half_close=False):
    """Sends bytes and returns all that comes back."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received.decode()


POST = b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01 not HTTP\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300_000 + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost", 400),
        (POST + b"Content-Length: 1000\r\n\r\n{", 400),
        (POST + b"Content-Length: 100000000\r\n\r\n{", 413),
        (POST + b"Content-Length: -1\r\n\r\n{", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
    ids=["no HTTP", "huge headers", "half headers", "half body", "huge body", "negative length", "broken chunks"],
)
def test_malformed_huge_slow_and_half_sent_requests_get_their_answer(data, status, monkeypatch):
    monkeypatch.setattr(server_module, "HEADER_SECONDS", 0.3)
    service = make_service(max_seconds=0.3)
    with running(make_app(service), service.limits) as address:
        answer = send(address, data)
        assert answer.startswith(f"HTTP/1.1 {status} ")
        assert list(json.loads(answer.partition("\r\n\r\n")[2])) == ["error"]
        assert send(address, POST + b"Content-Length: 1000\r\n\r\n{", half_close=True) == ""  # it has gone
        assert LibreTranslateAPI(address).translate("a dog", "en", "de") == "A DOG"


JSON = json.dumps({"q": "a dog", "source": "en", "target": "de"}).encode()
COMPLETE = POST + b"Content-Length: %d\r\n\r\n" % len(JSON) + JSON


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_half_closing_client_gets_its_answer(version, monkeypatch):
    monkeypatch.setattr(server_module, "PROBE_SECONDS", 0.01)
    with running(make_app(make_service(translator=UpperCaseTranslator(seconds=0.1)))) as address:
        answer = send(address, COMPLETE.replace(b"HTTP/1.1", b"HTTP/" + version), half_close=True)
        probes, _, final = answer.rpartition("HTTP/1.1 200")
        assert final.endswith('{"translatedText":"A DOG"}')
        assert set(probes.split("\r\n\r\n")) <= {"HTTP/1.1 100 Continue", ""}
        assert bool(probes) == (version == b"1.1")  # HTTP/1.0 knows no such answers
        both = send(address, COMPLETE + COMPLETE, half_close=True)
        assert both.count('{"translatedText":"A DOG"}') == 2


def test_a_client_that_has_gone_leaves_the_queue(monkeypatch):
    """Its closed connection looks half-closed until it answers a probe."""
    monkeypatch.setattr(server_module, "PROBE_SECONDS", 0.01)
    released, translator = threading.Event(), UpperCaseTranslator()
    translate = translator.translate
    translator.translate = lambda texts, **options: released.wait(60) and translate(texts, **options)
    with running(make_app(make_service(translator=translator))) as address:

        def wait_for(*counters):
            while not all(counter in requests.get(f"{address}/metrics").text for counter in counters):
                time.sleep(0.01)

        parts = urlsplit(address)
        try:
            with socket.create_connection((parts.hostname, parts.port)) as busy:
                busy.sendall(COMPLETE)
                wait_for("translations_accepted_total 1.0", "waiting_sentences 0.0")
                with socket.create_connection((parts.hostname, parts.port)) as gone:
                    gone.sendall(COMPLETE)
                    wait_for("waiting_sentences 1.0")
                wait_for('path="/translate",status="499"', "waiting_sentences 0.0")
        finally:
            released.set()
    assert translator.batches == [["a dog"]]


def test_tiny_chunks_leave_the_loop_to_others(monkeypatch):
    """The server reads little at once, so requests of others come in between."""
    sizes, received = [], server_module.Protocol.data_received
    monkeypatch.setattr(
        server_module.Protocol, "data_received", lambda self, data: sizes.append(len(data)) or received(self, data)
    )
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    with running(make_app(make_service())) as address:
        spaces = b"1\r\n \r\n" * 60_000
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(JSON), JSON)
        assert send(address, chunked + spaces + body, half_close=True).endswith('{"translatedText":"A DOG"}')
        assert send(address, chunked + b"1\r\n \r\n" * 150_000).startswith("HTTP/1.1 413")
    assert max(sizes) <= server_module.READ_BYTES


def test_only_a_trusted_proxy_names_the_client():
    def statuses(**options):
        service = make_service(requests_per_minute=1)
        with running(make_app(service), **options) as address:
            headers = [{"X-Forwarded-For": f"10.0.0.{number}"} for number in range(2)]
            return [requests.post(f"{address}/translate", JSON, headers=each).status_code for each in headers]

    assert statuses() == [200, 429]
    assert statuses(trusted_proxies=["10.0.0.0/8"]) == [200, 429]
    assert statuses(trusted_proxies=["127.0.0.0/8"]) == [200, 200]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"port": 99_999}, "port=99999 is no port: choose one from 0 to 65535"),
        ({"port": -1}, "port=-1 is no port"),
        ({"trusted_proxies": ["proxy"]}, "'proxy' does not appear to be an IPv4 or IPv6 network"),
    ],
)
def test_options_that_can_not_be_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        server_module.Server(make_app(make_service()), Limits(), **options)


def test_an_upgrade_is_answered_as_any_request():
    """No library for WebSockets, installed by chance, answers in place of the application."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"
    with running(make_app(make_service())) as address:
        answer = send(address, b"GET /nowhere HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n", half_close=True)
    assert answer.startswith("HTTP/1.1 404")
    assert list(json.loads(answer.partition("\r\n\r\n")[2])) == ["error"]


def test_connections_are_bounded():
    service = make_service(max_connections=5)
    with running(make_app(service), service.limits) as address:
        parts = urlsplit(address)
        connections = [socket.create_connection((parts.hostname, parts.port)) for _ in range(8)]
        time.sleep(0.2)
        answer = send(address, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith("HTTP/1.1 503")
        assert "Too many connections" in answer
        for connection in connections:
            connection.close()
        time.sleep(0.2)
        assert LibreTranslateAPI(address).translate("a", "en", "de") == "A"


# --- a process of its own ---


async def translate_all(address, texts, clients, answers, counts):
    """Clients that each take the next text; `answers` gets (number, status, answer)."""
    numbers = iter(range(len(texts)))

    async def client(session):
        for number in numbers:
            query = {"q": texts[number], "source": "en", "target": "de"}
            try:
                async with session.post(f"{address}/translate", json=query) as response:
                    answers.append((number, response.status, await response.json()))
            except (ClientError, OSError):
                counts["refused"] += 1

    async with ClientSession() as session:
        await asyncio.gather(*(client(session) for _ in range(clients)))


# --- models that are loaded while the server runs ---


def attention(address, model="", **query):
    query = {"q": "A dog runs.", "translation": "Ein Hund rennt.", "heads": True, "model": model, **query}
    return requests.post(f"{address}/attention", json={"source": "en", "target": "de", **query}, timeout=120)


OVERLAPPING = """
from transformers import initialization
from tests.overlapping_loads import overlapping_loads
from vanilla_transformer.scripts import serve

initialization.no_tie_weights = overlapping_loads()
serve.main()
"""


def test_two_models_are_loaded_in_torch_at_once(tmp_path):
    models = [shutil.copytree(BUNDLED, tmp_path / name) for name in ("first", "second")]
    with process("--page=false", models=models, python=("-c", OVERLAPPING)) as (_, address):
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(partial(attention, address), ["first", "second"]))
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].json() == answers[1].json()


def test_a_model_whose_folder_vanishes_gets_a_sentence(tmp_path):
    folder = shutil.copytree(BUNDLED, tmp_path / "gone")
    with process("--page=false", models=[folder]) as (server, address):
        shutil.rmtree(folder)
        answer = attention(address, "gone")
        assert answer.status_code == 503
        assert answer.json() == {"error": "The server can't load the model any more. Its log says why."}
        assert LibreTranslateAPI(address).translate("A dog runs.", "en", "de") == "Ein Hund rennt."
        server.send_signal(signal.SIGTERM)
        log = server.stderr.read()
    assert f"{folder} can't be loaded (there is no such folder)" in log
    assert "Traceback" not in log


# --- the end ---


def test_sigterm_under_load_loses_no_accepted_request(bundled):
    """The server counts what it accepts. Clients must get exactly so many answers."""
    texts = [f"A man with {number} dogs." for number in range(4000)]
    answers, counts = [], {"refused": 0}
    with process("--page", "false") as (server, address):
        load = threading.Thread(target=asyncio.run, args=(translate_all(address, texts, 16, answers, counts),))
        load.start()
        while len(answers) < 50:
            time.sleep(0.01)
        server.send_signal(signal.SIGTERM)
        log = server.stderr.read()
        assert server.wait() == 0
        load.join()
    accepted, unanswered = re.search(r"stopped: (\S+) requests accepted, (\S+) of them unanswered", log).groups()
    assert int(accepted.replace(",", "")) == len(answers)
    assert unanswered == "0"
    assert {status for _, status, _ in answers} == {200}
    assert counts["refused"] > 0  # the load went on after the signal
    for number, _, answer in answers[-5:]:
        assert answer["translatedText"] == bundled(texts[number])


@pytest.mark.slow
def test_ten_thousand_requests_without_a_lost_doubled_or_swapped_answer():
    """Every answer is that of the offline translation, and memory is flat.

    Where two translations are almost equally probable, the engine's choice depends on the other sentences of a batch,
    through rounding. Those few sentences are compared with their translation alone.
    """
    translator = Translator.from_pretrained(BUNDLED, backend="ctranslate2")
    nouns, verbs = ["man", "dog", "girl", "woman", "child"], ["runs", "sleeps", "jumps", "plays"]
    texts = [f"A {nouns[n % 5]} {verbs[n // 5 % 4]} with {n} balls." for n in range(10_000)]
    expected = translator(texts, num_beams=1)
    assert len(set(expected)) > 5000  # swapped answers would be seen
    answers, counts = [], {"refused": 0}
    with process("--page=false", "--backend=ctranslate2", "--num_beams=1") as (server, address):
        asyncio.run(translate_all(address, texts[:2000], 32, answers, counts))
        memory = resident(server.pid)
        answers.clear()
        asyncio.run(translate_all(address, texts, 32, answers, counts))
        growth = resident(server.pid) - memory
    assert counts["refused"] == 0
    assert sorted(number for number, _, _ in answers) == list(range(len(texts)))
    others = {number: answer for number, _, answer in answers if answer != {"translatedText": expected[number]}}
    print(f"{len(others)} translations depend on their batch; memory grew by {growth / 2**20:.1f} MiB")
    assert len(others) <= 10
    assert others == {number: {"translatedText": translator(texts[number], num_beams=1)} for number in others}
    assert growth < 30 * 2**20


@pytest.mark.slow
def test_hostile_requests_for_attention_leave_the_memory_where_it_was():
    """The longest sentence and the longest translation that are accepted, thirty times."""
    sentence, translation = "a " * 500 + ".", "ein " * 1000 + "."
    query = {"q": sentence, "translation": translation, "source": "en", "target": "de"}
    short = {"q": "dog " * 100, "translation": "Hund " * 100, "heads": True}
    with process() as (server, address):
        for _ in range(5):
            for each in (query, {**query, **short}):
                assert requests.post(f"{address}/attention", json=each).status_code == 200
        memory = resident(server.pid)
        for _ in range(15):
            for each in (query, {**query, **short}):
                requests.post(f"{address}/attention", json=each)
        growth = resident(server.pid) - memory
    print(f"memory grew by {growth / 2**20:.1f} MiB")
    assert growth < 50 * 2**20


def test_the_server_stops_at_once_beside_open_pages():
    """Pages keep connections for their next request, and nothing that never ends."""
    service = make_service()
    with running(make_app(service), service.limits) as own:
        parts = urlsplit(own)
        pages = [socket.create_connection((parts.hostname, parts.port), timeout=20) for _ in range(3)]
        for page in pages:
            page.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert page.recv(100).startswith(b"HTTP/1.1 200")
        start = time.monotonic()
    assert time.monotonic() - start < 5
    for page in pages:
        page.close()
