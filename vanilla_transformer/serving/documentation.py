"""What the API offers, as an OpenAPI schema for programs and as a page for people."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

from pydantic import BaseModel

from .request_schema import FORMS


class ApiRoute(NamedTuple):
    """A route of the API: what answers it, a summary, and its parameters."""

    method: str
    path: str
    answer: Callable[..., Any]
    summary: str
    parameters: type[BaseModel] | None = None


def openapi(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """The schema. A body may be JSON or a form, with the same fields."""
    error = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    responses = {
        "200": {"description": "The answer."},
        "default": {"description": "A sentence.", "content": {"application/json": {"schema": error}}},
    }
    paths: dict[str, Any] = {}
    for route in routes:
        paths[route.path] = {route.method.lower(): {"summary": route.summary, "responses": responses}}
        if route.parameters:
            fields = {"schema": route.parameters.model_json_schema()}
            content = dict.fromkeys(("application/json", *FORMS), fields)
            paths[route.path][route.method.lower()]["requestBody"] = {"required": True, "content": content}
    return {"openapi": "3.1.0", "info": {"title": "vanilla serve", "version": "1"}, "paths": paths}


def documentation_page(schema: dict[str, Any]) -> str:
    """The schema as HTML."""
    sections = ""
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            sections += f"<h2><code>{method.upper()} {path}</code></h2><p>{escape(route['summary'])}.</p>"
            if body := route.get("requestBody"):
                fields = body["content"]["application/json"]["schema"]
                needed, rows = fields.get("required", []), ""
                for name, field in fields["properties"].items():
                    default = "required" if name in needed else escape(str(field.get("default") or ""))
                    text = escape(field.get("description", ""))
                    rows += f"<tr><th scope='row'><code>{name}</code></th><td>{default}</td><td>{text}</td></tr>"
                sections += f"<table class='parameters'>{rows}</table>"
    return f"""<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>The API</title><link rel="stylesheet" href="style.css"><link rel="icon" href="icon.svg">
<main class="documentation"><h1>The API</h1>
<p>Parameters come as JSON, as a form or in the address. Answers are JSON; an error is <code>{{"error": "a
sentence"}}</code>. <a href="openapi.json">The same as an OpenAPI schema</a>.</p>{sections}</main></html>
"""
