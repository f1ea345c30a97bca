"""The site: `make docs` builds it from these pages and the docstrings, without the network."""

import re

from vanilla_transformer import __version__


project = "vanilla_transformer"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"vanilla transformer {release}"  # with a space, so that the side bar can break it
html_show_copyright = False
exclude_patterns = ["**.ipynb", "pictures/*.json"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
autodoc_typehints = "none"  # the signature's types are those of the Args
autodoc_member_order = "bysource"
nitpicky = False
suppress_warnings = ["misc.highlighting_failure"]  # shell blocks with placeholders

# Links to files of the repository that are no page: the site shows their text and path.
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./([^)#\s]+)|(tour\.ipynb))(?:#[^)\s]*)?\)")


def without_links_outside(app, name, source):
    """Replaces links that lead out of docs/ by their text and, for code, the path."""

    def text(match):
        words, path = match[1], match[2] or f"docs/{match[3]}"
        return words if words.strip("`") in path else f"{words} (`{path}`)"

    source[0] = OUTSIDE.sub(text, source[0])


def as_rst(app, what, name, obj, options, lines):
    """Docstrings are Markdown, as the library's are: code in single backticks and fenced examples."""
    text = "\n".join(lines)
    text = re.sub(r"(?m)^( *)```python\n((?:.*\n)*?) *```$", _code_block, text)
    text = re.sub(r"\[`~?([\w.]+)`\]", r"`\1`", text)
    text = re.sub(r"\[([^\]]+)\]\((https?://[^)]+)\)", r"`\1 <\2>`__", text)
    text = re.sub(r"(?<![`:\w])`([^`<\n]+)`(?![`_])", r"``\1``", text)
    text = re.sub(r"\|(?=[(^])", r"\\|", text)  # a norm, not a substitution
    lines[:] = text.replace("*optional*", "optional").split("\n")


def _code_block(match):
    body = "\n".join(f"    {line}" for line in match[2].splitlines())
    return f"{match[1]}.. code-block:: pycon\n\n{body}\n"


def setup(app):
    app.connect("source-read", without_links_outside)
    app.connect("autodoc-process-docstring", as_rst, priority=100)  # before napoleon
