"""What a client is told when its request can't be served."""

from starlette.exceptions import HTTPException


CLIENT_HAS_GONE = 499  # in the metrics: nobody gets this answer


class RequestError(HTTPException):
    """A request that is refused. The client gets `{"error": sentence}`.

    Args:
        status: HTTP status: 400, 403, 405, 413, 429, 500 or 503.
        sentence: What is wrong, and what the client can do. It holds no path, key or traceback.
        headers: HTTP headers of the answer, such as `Retry-After`.
    """

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None):
        super().__init__(status, sentence, headers)


def client_has_gone() -> RequestError:
    return RequestError(CLIENT_HAS_GONE, "The client has gone.")


def shown(value: object) -> str:
    """A value that a client sent, in a form that is safe to send back: short, quoted and printable."""
    text = ascii(value)
    return text if len(text) <= 50 else f"{text[:50]}..."
