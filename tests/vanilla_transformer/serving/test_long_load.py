"""The server under mixed load for a long time, and killed under load.

LOAD_SECONDS=1200 pytest -m slow -s tests/vanilla_transformer/serving/test_long_load.py
"""

import asyncio
import json
import os
import random
import signal
import threading
import time
from statistics import linear_regression, quantiles

import pytest
import requests
from aiohttp import ClientError, ClientSession, TCPConnector

from .conftest import process, resident


SECONDS = int(os.environ.get("LOAD_SECONDS", "120"))
CLIENTS = 32
NOUNS, VERBS = ["man", "dog", "girl", "woman", "child"], ["runs", "sleeps", "jumps", "plays"]
LANGUAGES = {"source": "en", "target": "de"}


def kinds_of_requests():
    """Requests as (kind, method, path, body), some of them wrong."""
    sentences = [f"A {noun} {verb} with {number} balls." for number in range(2, 5) for noun in NOUNS for verb in VERBS]
    for number, sentence in enumerate(sentences):
        other = sentences[number - 1]
        yield "text", "POST", "/translate", {"q": sentence}
        yield "list", "POST", "/translate", {"q": [sentence, other, f"{sentence} {other}"]}
        yield "html", "POST", "/translate", {"q": f"<p>{sentence} <b>{other}</b></p>", "format": "html"}
        if number % 4 == 0:
            translation = "Ein Hund rennt mit Bällen."
            yield "attention", "POST", "/attention", {"q": sentence, "translation": translation}
            yield "alternatives", "POST", "/alternatives", {"q": sentence, "prefix": "Ein", "alternatives": 2}
            yield "n-best", "POST", "/sentences", {"q": f"{sentence} {other}"}
    for path in ("/", "/languages", "/models", "/health"):
        yield "page", "GET", path, None
    yield "wrong", "POST", "/translate", {"q": 3}
    yield "wrong", "POST", "/translate", {"q": "A dog.", "target": "xx"}
    yield "wrong", "GET", "/nowhere", None


def comparable(answer):
    """An answer without what a batch may change: the last digits of scores, probabilities and weights."""
    if isinstance(answer, dict):
        return {key: comparable(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [comparable(value) for value in answer]
    return pytest.approx(answer, rel=1e-3, abs=1e-3) if isinstance(answer, float) else answer


async def ask(session, address, method, path, body):
    query = None if body is None else {**LANGUAGES, **body}
    async with session.request(method, f"{address}{path}", json=query) as response:
        text = await response.text()
        is_json = response.content_type == "application/json"
        return response.status, json.loads(text) if is_json else text


@pytest.mark.slow
def test_mixed_load_gives_right_answers_and_leaves_memory_where_it_was():
    async def load(server, address):
        asked = list(kinds_of_requests())
        latencies, wrong, memory = {kind: [] for kind, *_ in asked}, [], []
        draw = random.Random(0)

        async def client(session):
            while time.monotonic() < start + SECONDS:
                number = draw.randrange(len(asked))
                kind, *request = asked[number]
                sent = time.monotonic()
                status, answer = await ask(session, address, *request)
                latencies[kind].append(time.monotonic() - sent)
                if (status, answer) != expected[number]:
                    wrong.append((request, status, answer))

        async def watch():
            while time.monotonic() < start + SECONDS:
                memory.append((time.monotonic() - start, resident(server.pid) / 2**20))
                await asyncio.sleep(1)

        async with ClientSession(connector=TCPConnector(limit=CLIENTS)) as session:
            alone = [await ask(session, address, *request) for _, *request in asked]
            expected = [(status, comparable(answer)) for status, answer in alone]
            start = time.monotonic()
            await asyncio.gather(watch(), *(client(session) for _ in range(CLIENTS)))
        return latencies, wrong, memory

    with process() as (server, address):
        latencies, wrong, memory = asyncio.run(load(server, address))
        assert server.poll() is None
    settled = memory[len(memory) // 4 :]
    slope, _ = linear_regression(*zip(*settled, strict=True))
    number = sum(map(len, latencies.values()))
    print(f"\n{number:,} requests in {SECONDS} s, {len(wrong)} unlike the answer to the same request alone")
    for kind, seconds in latencies.items():
        print(f"{kind:12} {len(seconds):8,}  p95 {1000 * quantiles(seconds, n=20)[-1]:6.0f} ms")
    print(f"memory {settled[0][1]:.1f} MiB, at the end {settled[-1][1]:.1f}; {60 * slope:+.3f} MiB a minute")
    assert not wrong[:3]
    assert settled[-1][1] - settled[0][1] < 20


@pytest.mark.slow
def test_a_killed_server_gives_no_half_answer_and_starts_again():
    with process() as (server, address):
        expected = requests.post(f"{address}/translate", json={"q": "A dog runs.", **LANGUAGES}).json()
    for _ in range(3):
        answers, cut_off = [], 0

        async def client(session, address, answers):
            nonlocal cut_off
            while True:
                try:
                    answers.append(await ask(session, address, "POST", "/translate", {"q": "A dog runs."}))
                except (ClientError, OSError):
                    cut_off += 1
                    return

        async def load(address, answers, client):
            async with ClientSession() as session:
                await asyncio.gather(*(client(session, address, answers) for _ in range(16)))

        with process() as (server, address):
            clients = threading.Thread(target=asyncio.run, args=(load(address, answers, client),))
            clients.start()
            while len(answers) < 200:
                time.sleep(0.01)
            server.send_signal(signal.SIGKILL)
            clients.join(timeout=60)
        assert not clients.is_alive()
        assert cut_off == 16
        assert all(answer == (200, expected) for answer in answers)
