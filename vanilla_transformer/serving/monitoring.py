"""What the server counts, for Prometheus, and its log of requests."""

import json
import time
from collections.abc import Callable, Container
from datetime import UTC, datetime
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters of one server. No label comes from a client, so their number is bounded."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "vanilla_requests_total", "Requests answered.", ["path", "status"], registry=self.registry
        )
        self.accepted = Counter(
            "vanilla_translations_accepted_total", "Requests for a translation accepted.", registry=self.registry
        )
        self.unanswered = Counter(
            "vanilla_translations_unanswered_total",
            "Accepted requests without an answer: the client went away, or the server had to stop.",
            registry=self.registry,
        )
        self.characters = Counter(
            "vanilla_characters_total", "Characters of the texts that were accepted.", registry=self.registry
        )
        self.seconds = Histogram(
            "vanilla_request_seconds", "Time until the answer.", ["path"], buckets=SECONDS, registry=self.registry
        )
        self.batches = Histogram(
            "vanilla_batch_sentences", "Sentences in a batch.", buckets=SENTENCES, registry=self.registry
        )

    def watch_queue(self, waiting: Callable[[], float]) -> None:
        """Adds the number of waiting sentences."""
        gauge = Gauge("vanilla_waiting_sentences", "Sentences that wait for the engine.", registry=self.registry)
        gauge.set_function(waiting)

    def summary(self) -> str:
        """What the log says at the end."""
        accepted, unanswered = (self._value(counter) for counter in (self.accepted, self.unanswered))
        return f"{accepted:,} requests accepted, {unanswered:,} of them unanswered"

    def _value(self, counter: Counter) -> int:
        return int(next(iter(counter.collect())).samples[0].value)

    def text(self) -> bytes:
        """All values, in the text format of Prometheus."""
        return generate_latest(self.registry)


class AccessLog:
    """Middleware: writes a line of JSON for each request.

    A line has neither texts nor keys: no address beyond its path, and no path or method that a client made up.

    Args:
        app: The application.
        file: Where the lines go.
        paths: The paths that the server knows.
    """

    METHODS = ("GET", "HEAD", "POST", "OPTIONS")

    def __init__(self, app: ASGIApp, file: TextIO, paths: Container[str]):
        self._app, self._file, self._paths = app, file, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, start, status = datetime.now(UTC), time.perf_counter(), 500

        async def send_and_note(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, send_and_note)
        finally:
            line = {
                "time": begin.isoformat(timespec="milliseconds"),
                "method": scope["method"] if scope["method"] in self.METHODS else None,
                "path": scope["path"] if scope["path"] in self._paths else None,
                "status": status,
                "seconds": round(time.perf_counter() - start, 6),
            }
            self._file.write(json.dumps(line) + "\n")
