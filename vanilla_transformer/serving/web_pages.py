"""The files of the page, and the headers that keep every answer within its own origin."""

import os

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .standalone_page import web_file


FILES = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/translate.js": ("translate.js", "text/javascript"),
    "/drawing.js": ("drawing.js", "text/javascript"),
}
# The Hub shows a Space in a frame of its own page.
FRAMES = "https://huggingface.co" if "SPACE_ID" in os.environ else "'none'"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors {FRAMES}"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class SecureHeaders:
    """Middleware: no foreign script, style, request or frame, and no guessing of content types.

    Args:
        app: The application.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, send_with_headers)


def page_routes() -> list[Route]:
    """The routes of the page's files."""

    def file_route(path: str, name: str, media_type: str) -> Route:
        text = web_file(name)

        async def answer(request: Request) -> Response:
            return Response(text, media_type=media_type, headers={"Cache-Control": "no-cache"})

        return Route(path, answer)

    return [file_route(path, *file) for path, file in FILES.items()]
