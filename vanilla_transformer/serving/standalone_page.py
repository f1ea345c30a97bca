"""A web page in one file that opens from disk: style, script and data are inside, and nothing comes from elsewhere."""

import json
from html import escape
from importlib.resources import files
from typing import Any


def web_file(name: str) -> str:
    """The text of a file in `web/`."""
    return files("vanilla_transformer.serving").joinpath("web", name).read_text(encoding="utf-8")


def standalone_html(title: str, drawing: str, data: Any) -> str:
    """Makes the page.

    Args:
        title: Title and heading.
        drawing: The function of `web/drawing.js` that draws: `drawAttention` or `drawIterations`.
        data: What it draws. The script inserts it as text, never as HTML.
    """
    # "<" is escaped, so that no text can end the script element that holds the JSON.
    embedded = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{web_file("style.css")}</style>
<main>
<h1>{escape(title)}</h1>
<div id="view"></div>
</main>
<script type="application/json" id="data">{embedded}</script>
<script type="module">
{web_file("drawing.js")}
{drawing}(document.getElementById("view"), JSON.parse(document.getElementById("data").textContent));
</script>
</html>
"""
