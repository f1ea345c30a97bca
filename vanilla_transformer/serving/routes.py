"""The HTTP API, compatible with LibreTranslate's.

Any answer is JSON; an error is `{"error": sentence}`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NoReturn, TypeVar

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .access_limits import ApiKeys, Limits, RateLimit
from .batching import RETRY
from .documents import translate_text
from .errors import RequestError, client_has_gone
from .html_markup import translate_html
from .monitoring import Metrics
from .request_schema import FORMS, BodyLimits, DetectionRequest, TranslationRequest, checked, parameters_of
from .served_models import Catalogue, ModelTranslator


T = TypeVar("T")
Route = Callable[[Request], Coroutine[Any, Any, Response]]
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
TRANSLATORS = {"text": translate_text, "html": translate_html}
# Names of languages, for clients that show them. Others are shown by their code.
LANGUAGE_NAMES = {
    **{"ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "en": "English", "es": "Spanish"},
    **{"fi": "Finnish", "fr": "French", "hi": "Hindi", "hu": "Hungarian", "it": "Italian", "ja": "Japanese"},
    **{"ko": "Korean", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian"},
    **{"ru": "Russian", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese"},
}


@dataclass
class Service:
    """What all requests share.

    Args:
        catalogue: The models.
        limits: Limits of requests.
        keys: API keys.
        metrics: Counters.
    """

    catalogue: Catalogue
    limits: Limits = field(default_factory=Limits)
    keys: ApiKeys = field(default_factory=ApiKeys)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.rate_limit = RateLimit(self.limits.requests_per_minute)
        self.metrics.watch_queue(lambda: sum(model.queue.waiting for model in self.catalogue.models))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the queues of all models."""
        async with AsyncExitStack() as stack:
            for model in self.catalogue.models:
                await model.start()
                stack.push_async_callback(model.stop)
            yield

    def admit(self, client: str, key: str | None) -> None:
        """Refuses a client without a valid key, or with too many requests."""
        if not self.keys.accept(key):
            raise RequestError(403, "api_key is missing or unknown: send a valid one.")
        self.rate_limit.count(client)

    def accept(self, query: TranslationRequest) -> tuple[list[str], ModelTranslator]:
        """Checks a request; returns its texts, and what translates them."""
        texts = [query.q] if isinstance(query.q, str) else query.q
        self.limits.require_texts(texts)
        model = self.catalogue.find(query.source, query.target, query.model)
        beams = query.num_beams or model.num_beams
        if query.alternatives >= beams:
            raise RequestError(
                400, f"alternatives={query.alternatives} is too many: a beam of {beams} finds {beams - 1}."
            )
        self.metrics.accepted.inc()
        self.metrics.characters.inc(sum(map(len, texts)))
        return texts, ModelTranslator(model, query.alternatives + 1, query.decoding)

    async def translate(self, query: TranslationRequest) -> dict[str, Any]:
        """Answers `/translate`."""
        texts, translator = self.accept(query)
        work = gather([TRANSLATORS[query.format](text, translator) for text in texts])
        try:
            ranked = await within(self.limits.max_seconds, work)
        except asyncio.CancelledError:
            self.metrics.unanswered.inc()
            raise
        best, others = [texts[0] for texts in ranked], [texts[1:] for texts in ranked]
        if isinstance(query.q, str):
            return {"translatedText": best[0], **({"alternatives": others[0]} if query.alternatives else {})}
        return {"translatedText": best, **({"alternatives": others} if query.alternatives else {})}

    def languages(self) -> list[dict[str, Any]]:
        """Answers `/languages`: every language, and what it can be translated into."""
        codes = dict.fromkeys(code for model in self.catalogue.models for code in map(str, model.languages))
        return [
            {"code": code, "name": LANGUAGE_NAMES.get(code, code), "targets": self.catalogue.targets(code)}
            for code in codes
        ]

    def detect(self) -> NoReturn:
        """Answers `/detect`: never with a guess."""
        sources = ", ".join(self.catalogue.sources)
        raise RequestError(400, f"This server translates from {sources} and detects no languages: send the source.")


async def gather(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs coroutines together. The first error, or a cancellation, ends all of them."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await end(*tasks)


async def end(*tasks: "asyncio.Future[Any]") -> None:
    """Cancels tasks, and waits until they have cleaned up."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Waits for a result. Work that takes too long is cancelled."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise RequestError(503, f"There was no answer within {seconds:g} seconds: try less text.", RETRY) from error


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Waits for a result. If the client goes away, the work is cancelled."""
    result, disconnect = asyncio.create_task(work), asyncio.create_task(_disconnect(request))
    try:
        await asyncio.wait((result, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise client_has_gone()
        return result.result()
    finally:
        await end(result, disconnect)


async def _disconnect(request: Request) -> None:
    """Returns when the client closes the connection. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def make_app(service: Service, *, cors_origins: Sequence[str] = ()) -> FastAPI:
    """Makes the application.

    Args:
        service: What all requests share.
        cors_origins: Origins whose pages may call the API from a browser; `*` for all.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="vanilla serve",
        description="Translation with LibreTranslate's API. Parameters may come as JSON, as a form or in the address.",
        lifespan=lifespan,
    )
    app.add_middleware(BodyLimits, limits=service.limits)
    if cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=list(cors_origins), allow_methods=["*"], allow_headers=["*"])
    app.add_exception_handler(HTTPException, _error_as_json)
    app.add_exception_handler(Exception, _failure_as_json)
    _add_routes(app, service)
    return app


def _add_routes(app: FastAPI, service: Service) -> None:
    async def translate(request: Request) -> JSONResponse:
        query = checked(TranslationRequest, await parameters_of(request))
        service.admit(_client(request), query.api_key)
        return JSONResponse(await while_connected(request, service.translate(query)))

    async def detect(request: Request) -> JSONResponse:
        query = checked(DetectionRequest, await parameters_of(request))
        service.admit(_client(request), query.api_key)
        service.detect()

    async def languages(request: Request) -> JSONResponse:
        return JSONResponse(service.languages())

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    async def metrics(request: Request) -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    def add(path: str, method: str, route: Route, summary: str, parameters: type[BaseModel] | None = None) -> None:
        documentation = {"requestBody": {"content": _documented(parameters)}} if parameters else None
        counted = _counted(path, route, service.metrics)
        app.add_api_route(path, counted, methods=[method], summary=summary, openapi_extra=documentation)
        others = [other for other in METHODS if other != method]
        app.add_api_route(path, _refuse_method(path, method), methods=others, include_in_schema=False)

    add("/translate", "POST", translate, "Translate texts", TranslationRequest)
    add("/detect", "POST", detect, "Detect a language: refused, because it would be a guess", DetectionRequest)
    add("/languages", "GET", languages, "List the languages")
    add("/health", "GET", health, "Say that the server runs")
    add("/metrics", "GET", metrics, "Show counters, in the text format of Prometheus")


def _counted(path: str, route: Route, metrics: Metrics) -> Route:
    """Counts the answers of a route, and their time."""

    @wraps(route)
    async def counted(request: Request) -> Response:
        start, status = time.perf_counter(), 500
        try:
            response = await route(request)
            status = response.status_code
            return response
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            metrics.requests.labels(path, str(status)).inc()
            metrics.seconds.labels(path).observe(time.perf_counter() - start)

    return counted


def _refuse_method(path: str, method: str) -> Route:
    async def refuse(request: Request) -> Response:
        raise RequestError(405, f"{path} takes {method} only.", {"Allow": method})

    return refuse


def _documented(parameters: type[BaseModel]) -> dict[str, Any]:
    """The content of a request body, for OpenAPI."""
    return {kind: {"schema": parameters.model_json_schema()} for kind in ("application/json", *FORMS)}


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


async def _error_as_json(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failure_as_json(request: Request, error: Exception) -> Response:
    """The traceback goes to the log, not to the client."""
    return JSONResponse({"error": "The server failed to answer. Its log says why."}, 500)
