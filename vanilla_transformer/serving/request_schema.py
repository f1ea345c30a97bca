"""From the bytes of an HTTP request to its parameters, within limits of size and time."""

import asyncio
import json
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vanilla_transformer.models.search_options import BeamSearchOptions

from .access_limits import Limits
from .errors import RequestError, client_has_gone


Parameters = TypeVar("Parameters", bound=BaseModel)
CLOSE = {"Connection": "close"}  # the rest of the body is not read
MOST_BEAMS = 16  # of a request: the work grows with them
OPTIONS = {option.name: option for option in fields(BeamSearchOptions)}
FORMS = FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
MOST_FIELDS = 1000


class ModelRequest(BaseModel):
    """Parameters of all routes that run a model: LibreTranslate's, then this server's own."""

    model_config = ConfigDict(strict=False, extra="ignore")

    q: Any
    source: str = Field(description="Source language; auto finds it in the text.", examples=["en"])
    target: str = Field(description="Target language.", examples=["de"])
    api_key: str | None = Field(None, description="Key, if the server needs one.")
    model: str | None = Field(None, description="Name of the model, if there are several for the languages.")


class DecodingRequest(ModelRequest):
    """Parameters of all routes that translate."""

    num_beams: int | None = Field(None, ge=1, le=MOST_BEAMS, description=OPTIONS["num_beams"].metadata["help"])
    length_penalty: float | None = Field(None, ge=-10, le=10, description=OPTIONS["length_penalty"].metadata["help"])
    confidence: bool = Field(False, description="Whether to say how sure the model is, from 0 to 1.")

    @property
    def decoding(self) -> dict[str, Any]:
        """The options of `Translator.translate` that are set; the others are the model's."""
        search = {name: value for name in OPTIONS if (value := getattr(self, name, None)) is not None}
        return {**search, **({"confidence": True} if self.confidence else {})}


class TranslationRequest(DecodingRequest):
    """The parameters of `/translate`."""

    q: str | list[str] = Field(description="The text, or a list of texts.", examples=["A dog runs in the snow."])
    format: Literal["text", "html"] = Field("text", description="html keeps the tags.")
    alternatives: int = Field(0, ge=0, description="Number of further translations, less than the beam of the model.")


class SentencesRequest(DecodingRequest):
    """The parameters of `/sentences`."""

    q: str = Field(description="The text.", examples=["A dog runs. A man sleeps."])
    alternatives: int = Field(0, ge=0, description="Number of further translations of each sentence.")


class ContinuationRequest(DecodingRequest):
    """The parameters of `/alternatives`."""

    q: str = Field(description="One sentence.", examples=["A dog runs in the snow."])
    prefix: Annotated[str, StringConstraints(strip_whitespace=True)] = Field(
        "", description="How the translation begins, in whole words.", examples=["Ein Hund"]
    )
    alternatives: int = Field(8, ge=1, le=MOST_BEAMS, description="Number of next tokens that are tried.")


class AttentionRequest(ModelRequest):
    """The parameters of `/attention`."""

    q: str = Field(description="One sentence.", examples=["A dog runs."])
    translation: str = Field(description="Its translation, by the model or by anyone.", examples=["Ein Hund rennt."])
    heads: bool = Field(False, description="Whether to add every layer and head; for short sentences.")


class DetectionRequest(BaseModel):
    """The parameters of `/detect`."""

    q: str = Field(description="The text.")
    api_key: str | None = Field(None, description="Key, if the server needs one.")


async def parameters_of(request: Request) -> dict[str, Any]:
    """Returns the parameters of a request, from its address and from its body: JSON or a form."""
    parameters = _urlencoded(request.scope["query_string"], "address")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        body = await request.body()
    except ClientDisconnect as error:
        raise client_has_gone() from error
    if content_type == FORM:
        return parameters | _urlencoded(body, "form")
    if content_type == MULTIPART:
        return parameters | await _multipart(request, body)
    return parameters | _json_object(body) if body.strip() else parameters


def _urlencoded(data: bytes, place: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except UnicodeDecodeError as error:
        raise _not_utf8(place) from error
    except ValueError as error:
        raise RequestError(400, f"The {place} has more than {MOST_FIELDS:,} fields: send fewer texts.") from error
    return _joined(pairs)


async def _multipart(request: Request, body: bytes) -> dict[str, Any]:
    try:
        body.decode()  # the parser would take what is not UTF-8 for Latin-1
        async with request.form(max_files=0, max_fields=MOST_FIELDS) as form:
            return _joined([(name, str(value)) for name, value in form.multi_items()])
    except UnicodeDecodeError as error:
        raise _not_utf8("form") from error
    except HTTPException as error:  # the parser's own, for a broken form
        raise RequestError(400, "The form can't be read: send it as its Content-Type says, without files.") from error


def _not_utf8(place: str) -> RequestError:
    return RequestError(400, f"The {place} is not UTF-8: send it in that encoding.")


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, "The body is not JSON: send an object, or a form with its Content-Type.") from error
    if not isinstance(value, dict):
        raise RequestError(400, "The body is JSON, but no object: send one with q, source and target.")
    return value


def _joined(items: list[tuple[str, str]]) -> dict[str, Any]:
    """A parameter that is given several times becomes a list."""
    values: dict[str, list[str]] = {}
    for name, value in items:
        values.setdefault(name, []).append(value)
    return {name: value[0] if len(value) == 1 else value for name, value in values.items()}


def checked(kind: type[Parameters], parameters: dict[str, Any]) -> Parameters:
    """Checks parameters; the first one that is wrong or missing is named in the error."""
    try:
        return kind.model_validate(parameters)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise RequestError(400, f"{first['loc'][0]}: {first['msg'].lower()}. See /docs for all parameters.") from error


class BodyLimits:
    """Middleware: refuses bodies that are too large, and those that arrive too slowly.

    Args:
        app: The application.
        limits: The limits.
    """

    def __init__(self, app: ASGIApp, limits: Limits):
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        deadline = asyncio.get_running_loop().time() + self._limits.max_seconds
        declared = Headers(scope=scope).get("content-length", "")
        size, complete = 0, False

        async def receive_within_limits() -> Message:
            nonlocal size, complete
            if complete:  # what follows is the client's disconnect, which may take its time
                return await receive()
            self._require_small(int(declared) if declared.isdecimal() else 0)
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as error:
                seconds = f"{self._limits.max_seconds:g} seconds"
                raise RequestError(400, f"The body did not arrive within {seconds}: send it again.", CLOSE) from error
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            self._require_small(size)
            return message

        await self._app(scope, receive_within_limits, send)

    def _require_small(self, size: int) -> None:
        if size > self._limits.max_bytes:
            limit = f"{self._limits.max_bytes:,} bytes"
            raise RequestError(413, f"The body has more than {limit}: send a shorter text.", CLOSE)
