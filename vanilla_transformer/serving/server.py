"""uvicorn, with what it lacks: a time limit for headers, errors as JSON, and a limit of connections."""

import asyncio
import ipaddress
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import h11
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .access_limits import Limits
from .batching import RETRY
from .routes import Service, make_app


logger = logging.getLogger(__name__)

HEADER_SECONDS = 10.0
LINGER_SECONDS = 2.0
PROBE_SECONDS = 0.2
READ_BYTES = 16_384  # at once: in chunks of one byte, 256 KiB would keep the event loop busy for a second


_TOO_MANY = JSONResponse(
    {"error": "Too many connections are open: try again in a moment."}, 503, {**RETRY, "Connection": "close"}
)


class LingeringTransport:
    """A transport that is closed gently while the client is still sending.

    If it were closed at once, the system would reset the connection, and the client might never see the answer. So it
    ends its own side only, and reads on for a moment.

    Args:
        transport: The transport.
        client_sends: Says whether the client is still sending.
    """

    def __init__(self, transport: asyncio.Transport, client_sends: Callable[[], bool]):
        self._transport, self._client_sends = transport, client_sends
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._lingers or self._transport.is_closing()

    def close(self) -> None:
        if self._lingers or self._transport.is_closing() or not self._client_sends():
            self._transport.close()
            return
        self._lingers = True
        self._transport.write_eof()
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.close)


class Protocol(H11Protocol):
    """Closes connections whose headers do not arrive, and answers what is not HTTP in JSON."""

    _header_timer: asyncio.TimerHandle | None = None
    _client_has_ended = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]
        super().connection_made(LingeringTransport(transport, self._client_sends))  # type: ignore[arg-type]
        self._time_headers()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self._time_headers()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Lets a client that only ended its own side have the answers to its complete requests."""
        self._client_has_ended = True
        return self._answers()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # begins the next request, if it has arrived
        if self._client_has_ended and not self._answers():
            self.transport.close()

    def _answers(self) -> bool:
        """Whether a complete request waits for its answer."""
        answers = self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete
        if answers:
            self._probe()
        return answers

    def _probe(self) -> None:
        """Sends "100 Continue", which clients skip, now and then: a client that has gone answers with a reset."""
        if self.cycle.response_started or self.transport.is_closing():
            return
        if self.scope["http_version"] == "1.1":
            event = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            self.transport.write(self.conn.send(event) or b"")
        self.loop.call_later(PROBE_SECONDS, self._probe)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._header_timer is not None:
            self._header_timer.cancel()

    def _client_sends(self) -> bool:
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def _time_headers(self) -> None:
        """Starts the clock when a connection or a request begins, and stops it when the headers are complete."""
        if self.conn.their_state is not h11.IDLE:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None
        elif self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._close_without_request)

    def _close_without_request(self) -> None:
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.send_400_response(f"The headers did not arrive within {HEADER_SECONDS:g} seconds.")

    def send_400_response(self, msg: str) -> None:
        """Sends the error, if a response is still possible, and closes the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": msg}).encode("ascii")
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class Server(uvicorn.Server):
    """Finishes the requests that were accepted, then stops.

    Args:
        app: The application.
        limits: Limits of requests and connections.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        trusted_proxies: Addresses or networks of proxies whose `X-Forwarded-For` names the client.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        trusted_proxies: Sequence[str] = (),
    ):
        if not 0 <= port <= 65_535:
            raise ValueError(f"port={port} is no port: choose one from 0 to 65535.")
        for proxy in trusted_proxies:
            ipaddress.ip_network(proxy)  # its error is a sentence
        self._max_connections = limits.max_connections
        config = uvicorn.Config(
            self._guarded(app),
            host=host,
            port=port,
            http=Protocol,
            ws="none",
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(trusted_proxies),
            access_log=False,  # it would hold texts and keys that come in addresses
            log_level="warning",
            lifespan="on",
            h11_max_incomplete_event_size=limits.max_bytes,
            timeout_graceful_shutdown=int(2 * limits.max_seconds) + 1,
        )
        super().__init__(config)

    @property
    def address(self) -> str:
        """The URL of the running server."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            logger.warning(f"serving at {self.address} (Ctrl-C to stop)")

    def _guarded(self, app: ASGIApp) -> ASGIApp:
        """The application, without requests on connections that are too many."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            too_many = scope["type"] == "http" and len(self.server_state.connections) > self._max_connections
            await (_TOO_MANY if too_many else app)(scope, receive, send)

        return guarded


def serve(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    trusted_proxies: Sequence[str] = (),
    access_log: str | None = None,
    **app: Any,
) -> None:
    """Answers requests until Ctrl-C or SIGTERM.

    Args:
        service: What all requests share.
        host: Address to listen on.
        port: Port to listen on.
        trusted_proxies: Addresses or networks of proxies whose `X-Forwarded-For` names the client.
        access_log: File that gets a line of JSON for each request.
        app: Other options of `make_app`.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn repeats the signal when it has stopped
    with open(access_log, "a", buffering=1, encoding="utf-8") if access_log else nullcontext() as log:
        application = make_app(service, access_log=log, **app)
        server = Server(application, service.limits, host=host, port=port, trusted_proxies=trusted_proxies)
        try:
            server.run()
        finally:
            logger.warning(f"stopped: {service.metrics.summary()}")
