"""The HTTP API: LibreTranslate's, and what our page needs beyond it.

Any answer is JSON; an error is `{"error": sentence}`. Nothing is kept between requests.
"""

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TextIO, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from vanilla_transformer.hub.languages import LANGUAGE_NAMES
from vanilla_transformer.hub.saved_files import LoadingError
from vanilla_transformer.translation.attention_maps import attention_data
from vanilla_transformer.translation.language_detection import AUTO, Detection
from vanilla_transformer.translation.long_texts import Pieces
from vanilla_transformer.translation.translator import Hypothesis
from vanilla_transformer.translation.words import spelled, word_spans

from .access_limits import ApiKeys, Limits, RateLimit
from .batching import RETRY
from .documentation import ApiRoute, documentation_page, openapi
from .documents import translate_text
from .errors import RequestError, client_has_gone
from .html_markup import translate_html
from .monitoring import AccessLog, Metrics
from .request_schema import (
    MOST_BEAMS,
    AttentionRequest,
    BodyLimits,
    ContinuationRequest,
    DecodingRequest,
    DetectionRequest,
    SentencesRequest,
    TranslationRequest,
    checked,
    parameters_of,
)
from .served_models import Catalogue, ModelTranslator
from .web_pages import SecureHeaders, page_routes


logger = logging.getLogger(__name__)
T = TypeVar("T")
SHOWN_WORD = re.compile(r"\w+(?:[-'’]\w+)*|\S")  # of a list to choose from: T-Shirt, not T
_MARKUP = re.compile(r"<[^<>]*>")
TRANSLATORS = {"text": translate_text, "html": translate_html}


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
        """Refuses a client with too many requests, or without a valid key. Wrong keys count, too."""
        self.rate_limit.count(client)
        if not self.keys.accept(key):
            raise RequestError(403, "api_key is missing or unknown: send a valid one.")

    def accept(
        self, query: DecodingRequest, texts: list[str], alternatives: int = 0, prefix: str = ""
    ) -> list[ModelTranslator]:
        """Checks a request for translations; returns a translator for each text."""
        self.limits.require_texts(texts, prefix)
        translators = []
        for text in texts or [""]:
            direction, found = self.catalogue.languages_of(_MARKUP.sub(" ", text), query.source, query.target)
            model = self.catalogue.find(direction, query.model)
            if alternatives >= (beams := query.num_beams or model.num_beams):
                sentence = f"alternatives={alternatives} is too many: a beam of {beams} finds {beams - 1}."
                raise RequestError(400, sentence)
            translators.append(ModelTranslator(model, alternatives + 1, query.decoding, direction, found))
        self.metrics.accepted.inc()
        self.metrics.characters.inc(sum(map(len, texts)))
        return translators[: len(texts)]

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for the translations of a request that was accepted."""
        try:
            return await within(self.limits.max_seconds, work)
        except asyncio.CancelledError:
            self.metrics.unanswered.inc()
            raise

    async def translate(self, query: TranslationRequest) -> dict[str, Any]:
        """Answers `/translate`."""
        texts = [query.q] if isinstance(query.q, str) else query.q
        translators = self.accept(query, texts, query.alternatives)
        pairs = zip(texts, translators, strict=True)
        ranked = await self.finish(gather([_translated(*pair, query.format) for pair in pairs]))
        fields: dict[str, list[Any]] = {"translatedText": [texts[0] for texts in ranked]}
        if query.alternatives:
            fields["alternatives"] = [texts[1:] for texts in ranked]
        if query.confidence:
            words = [chain.from_iterable(each.words or () for each in one.best) for one in translators]
            fields["confidence"] = [Hypothesis("", words=tuple(of_text)).confidence for of_text in words]
        if any(changed := [[value for each in one.best for value in each.not_copied] for one in translators]):
            fields["not_copied"] = changed
        fields |= _languages_json(query, translators)
        answer = {name: values[0] if isinstance(query.q, str) else values for name, values in fields.items()}
        are_calibrated = all(one.model.is_calibrated for one in translators)
        return answer | ({"calibrated": are_calibrated} if query.confidence else {})

    async def sentences(self, query: SentencesRequest) -> dict[str, Any]:
        """Answers `/sentences`: each sentence with its translations. Joined with what is `before` each and `after`
        the last, the best translations are the translation of the text."""
        (translator,) = self.accept(query, [query.q], query.alternatives)
        pieces = Pieces([query.q]) if translator.is_unchanged else Pieces.of(query.q, translator.language)
        ranked = await self.finish(translator.hypotheses(pieces.texts))
        text = pieces.join([hypotheses[0].text for hypotheses in ranked], translator.target_language)
        answer, end = [], 0
        for sentence, hypotheses in zip(pieces.texts, ranked, strict=True):
            start = text.index(hypotheses[0].text, end)
            found = {each.text: each for each in reversed(hypotheses) if each.score != -math.inf}  # each text once
            translations = [_shown(hypothesis) for hypothesis in reversed(found.values())]
            answer.append({"before": text[end:start], "source": sentence, "translations": translations})
            end = start + len(hypotheses[0].text)
        about = {name: value for name, (value,) in _languages_json(query, [translator]).items()}
        return {"sentences": answer, "after": text[end:], **about}

    async def alternatives(self, query: ContinuationRequest) -> dict[str, Any]:
        """Answers `/alternatives`: translations that go on with different words after a prefix."""
        (translator,) = self.accept(query, [query.q], prefix=query.prefix)
        if translator.is_unchanged:
            raise RequestError(400, "The text is in the target language: there is nothing to translate.")
        work = translator.continue_with(query.q, query.prefix, query.alternatives)
        answer: dict[str, dict[str, Any]] = {}
        for probability, hypothesis in await self.finish(work):
            text, end = hypothesis.text, len(query.prefix)
            word = SHOWN_WORD.search(text, end)
            glued = any(start < end < stop for start, stop in word_spans(text))  # the prefix's last word went on
            if text.startswith(query.prefix) and word and not glued and word[0] not in answer:
                answer[word[0]] = {"word": word[0], "probability": round(probability, 4), **_shown(hypothesis)}
        return {"alternatives": list(answer.values())}

    async def attention(self, query: AttentionRequest) -> Response:
        """Answers `/attention`."""
        self.limits.require_texts([query.q], query.translation)
        direction, _ = self.catalogue.languages_of(query.q, query.source, query.target)
        translator = ModelTranslator(self.catalogue.find(direction, query.model), direction=direction)
        if translator.is_unchanged:
            raise RequestError(400, "The text is in the target language: there is no attention.")
        read = partial(_attention_json, heads=query.heads)
        work = translator.attend(query.q, query.translation, read, heads=query.heads)
        return Response(await within(self.limits.max_seconds, work), media_type="application/json")

    def models(self) -> dict[str, Any]:
        """Answers `/models`."""
        return {
            "models": [model.summary() for model in self.catalogue.models],
            "limits": {**vars(self.limits), "num_beams": MOST_BEAMS},
            "key_required": bool(self.keys),
        }

    def languages(self) -> list[dict[str, Any]]:
        """Answers `/languages`: every language, what it can be translated into, and which texts the models know."""
        codes = dict.fromkeys(str(code) for direction in self.catalogue.directions for code in direction)
        answers = []
        for code in codes:
            answer = {"code": code, "name": LANGUAGE_NAMES.get(code, code), "targets": self.catalogue.targets(code)}
            descriptions = self.catalogue.descriptions(code)
            answers.append({**answer, "description": " ".join(descriptions)} if descriptions else answer)
        return answers

    def counters(self) -> Response:
        """Answers `/metrics`."""
        return Response(self.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def detect(self, query: DetectionRequest) -> list[dict[str, Any]]:
        """Answers `/detect`."""
        self.limits.require_texts([query.q])
        return [_detection_json(self.catalogue.detect(query.q))]


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


class CorsWithJsonErrors(CORSMiddleware):
    """CORS whose refusals are JSON, as all errors."""

    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        sentence = "This origin, method or header is not allowed: start the server with --cors_origins."
        return JSONResponse({"error": sentence}, answer.status_code, {"Vary": "Origin"})


def make_app(
    service: Service, *, page: bool = True, cors_origins: Sequence[str] = (), access_log: TextIO | None = None
) -> ASGIApp:
    """Makes the application: the API and, if wanted, the page.

    Args:
        service: What all requests share.
        page: Whether to add the page.
        cors_origins: Origins whose pages may call the API from a browser; `*` for all.
        access_log: Gets a line of JSON for each request.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service.running():
            yield

    middleware = [Middleware(BodyLimits, limits=service.limits)]
    if cors_origins:
        origins = list(cors_origins)
        cors = Middleware(CorsWithJsonErrors, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])
        middleware.insert(0, cors)
    routes = [*_api_routes(service), *(page_routes() if page else [])]
    app = Starlette(
        routes=routes,
        middleware=middleware,
        exception_handlers={HTTPException: _error_as_json, Exception: _failure_as_json},
        lifespan=lifespan,
    )
    secure = SecureHeaders(app)  # around everything, so that errors have the headers too
    return AccessLog(secure, access_log, {route.path for route in routes}) if access_log else secure


def _api_routes(service: Service) -> list[Route]:
    table = [
        ApiRoute("POST", "/translate", service.translate, "Translate texts", TranslationRequest),
        ApiRoute("POST", "/detect", service.detect, "Detect the language of a text", DetectionRequest),
        ApiRoute("GET", "/languages", service.languages, "List the languages, and what each can be translated into"),
        ApiRoute("GET", "/models", service.models, "List the models, and the limits of requests"),
        ApiRoute("POST", "/sentences", service.sentences, "Translate a text, with n-best lists", SentencesRequest),
        ApiRoute("POST", "/alternatives", service.alternatives, "Go on in other words", ContinuationRequest),
        ApiRoute("POST", "/attention", service.attention, "Say where a translation looks", AttentionRequest),
        ApiRoute("GET", "/health", lambda: {"status": "ok"}, "Say that the server runs"),
        ApiRoute("GET", "/metrics", service.counters, "Show counters, in the text format of Prometheus"),
    ]
    schema = openapi(table)
    described = [
        Route("/openapi.json", lambda request: JSONResponse(schema)),
        Route("/docs", lambda request: HTMLResponse(documentation_page(schema))),
    ]
    return [*(Route(route.path, _endpoint(route, service), methods=[route.method]) for route in table), *described]


def _endpoint(route: ApiRoute, service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Answers requests to a route, and counts the answers and their time."""

    async def answer(request: Request) -> Response:
        if route.parameters is None:
            content = route.answer()
        else:
            query: Any = checked(route.parameters, await parameters_of(request))
            service.admit(request.client.host if request.client else "", query.api_key)
            try:
                content = await while_connected(request, route.answer(query))
            except LoadingError as error:  # some calls load a model in torch, and its folder may have vanished
                logger.error(str(error))
                raise RequestError(503, "The server can't load the model any more. Its log says why.") from error
        return content if isinstance(content, Response) else JSONResponse(content)

    async def counted(request: Request) -> Response:
        start, status = time.perf_counter(), 500
        try:
            response = await answer(request)
            status = response.status_code
            return response
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            service.metrics.requests.labels(route.path, str(status)).inc()
            service.metrics.seconds.labels(route.path).observe(time.perf_counter() - start)

    return counted


async def _error_as_json(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    sentence = error.detail
    if not isinstance(error, RequestError):  # Starlette's own: no such address, or not by this method
        allowed = (error.headers or {}).get("Allow")
        sentence = f"This address takes {allowed} only." if allowed else "There is nothing at this address: see /docs."
    return JSONResponse({"error": sentence}, error.status_code, error.headers)


async def _failure_as_json(request: Request, error: Exception) -> Response:
    """The traceback goes to the log, not to the client."""
    return JSONResponse({"error": "The server failed to answer. Its log says why."}, 500)


def _attention_json(sentence: str, hypothesis: Hypothesis, heads: bool) -> bytes:
    try:
        data = attention_data(sentence, hypothesis, heads=heads)
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()
    except ValueError as error:  # a variant whose attention is no full matrix
        raise RequestError(400, str(error)) from error


async def _translated(text: str, translator: ModelTranslator, format: str) -> list[str]:
    """Returns the translations of a text; of a text in the target language, the text itself."""
    return [text] if translator.is_unchanged else await TRANSLATORS[format](text, translator)


def _languages_json(query: DecodingRequest, translators: Sequence[ModelTranslator]) -> dict[str, list[Any]]:
    """Which language was found in each text, and which texts are in the target language."""
    fields: dict[str, list[Any]] = {}
    if query.source == AUTO:
        fields["detectedLanguage"] = [_detection_json(one.found) for one in translators if one.found]
    if any(one.is_unchanged for one in translators):
        fields["unchanged"] = [one.is_unchanged for one in translators]
    return fields


def _detection_json(found: Detection) -> dict[str, Any]:
    """A detected language in LibreTranslate's form, with its confidence in percent."""
    return {"language": found.language, "confidence": round(100 * found.confidence, 1)}


def _shown(hypothesis: Hypothesis) -> dict[str, Any]:
    """A translation as clients see it. Its words are how pages cut it, whatever they count as a character."""
    confidence = {
        "confidence": hypothesis.confidence,
        "word_confidence": [word.confidence for word in hypothesis.words or ()],
        "calibrated": hypothesis.is_calibrated,
    }
    return {
        "text": hypothesis.text,
        "score": hypothesis.score,
        "words": spelled(hypothesis.text, word_spans(hypothesis.text)),
        **({} if hypothesis.words is None else confidence),
        **({"not_copied": hypothesis.not_copied} if hypothesis.not_copied else {}),
    }
