"""The web page: text in, translation out while you type, with the n-best list and attention behind it.

The page translates through the queues of the API, under the same limits.
"""

import math
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from importlib.resources import files
from typing import Any

import gradio
from fastapi import FastAPI
from starlette.requests import Request

from .documents import translate_text
from .errors import RequestError
from .request_schema import TranslationRequest, checked
from .routes import Service, within
from .words import END, Span, WordAttention, word_attention


TITLE = "vanilla_transformer"
EXAMPLE = "A man in a blue shirt is standing on a ladder and cleaning a window."
MIN_WIDTH = 280  # of the parts of a row: on a phone each has its own
CSS = "#ranked .wrap { flex-direction: column; }"
COPY = "command => { navigator.clipboard && navigator.clipboard.writeText(command); }"
# Parts of Gradio that this page does not use and that would take files from, or give files to, anyone.
CLOSED = ("/gradio_api/upload", "/gradio_api/file", "/gradio_api/proxy", "/gradio_api/stream", "/gradio_api/component")


def add_page(app: FastAPI, service: Service) -> FastAPI:
    """Adds the page at `/` to an application. With API keys, the page asks for one as the password."""

    async def closed(request: Request) -> None:
        raise RequestError(404, "There is no such page.")

    for path in CLOSED:
        app.add_api_route(f"{path}{{rest:path}}", closed, methods=["GET", "POST"], include_in_schema=False)
    keys = service.keys
    return gradio.mount_gradio_app(
        app,
        make_page(service),
        path="/",
        auth=(lambda user, key: keys.accept(key)) if keys else None,
        auth_message="Any name, and an API key as the password.",
        footer_links=[],
        run_history=False,
        show_error=False,  # of errors that are not meant for clients
        ssr_mode=False,
        max_file_size=1,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        css=CSS,
        theme=gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
    )


def make_page(service: Service) -> gradio.Blocks:
    """Makes the page."""
    page, models = Page(service), service.catalogue.models
    first = models[0]
    with gradio.Blocks(title=TITLE, analytics_enabled=False) as blocks:
        gradio.Markdown(f"# {TITLE}")
        with gradio.Row():
            size: dict[str, Any] = {"lines": 6, "max_lines": 20, "min_width": MIN_WIDTH}
            text = gradio.Textbox(EXAMPLE, label="Text", elem_id="text", autofocus=True, **size)
            translation = gradio.Textbox(
                label="Translation", elem_id="translation", buttons=["copy"], interactive=False, **size
            )
        with gradio.Row():
            model = gradio.Dropdown(
                [(f"{model.name} ({model.languages})", model.name) for model in models],
                value=first.name,
                label="Model",
                interactive=True,
                min_width=MIN_WIDTH,
            )
            beam, alpha = first.num_beams, first.defaults["length_penalty"]
            beams = gradio.Slider(1, max(10, beam), beam, step=1, label="Beam size", min_width=MIN_WIDTH)
            penalty = gradio.Slider(
                min(-1, alpha), max(2, alpha), alpha, step=0.1, label="Length penalty", min_width=MIN_WIDTH
            )
        share = gradio.Button("Share as curl", size="sm", elem_id="share")
        command = gradio.Code(label="Command", language="shell", interactive=False, visible=False, elem_id="command")
        details = gradio.JSON(visible=False)
        sentence = gradio.Dropdown([], label="Sentence", visible=False, interactive=True)
        ranked = gradio.Radio([], label="Best translations, with their scores", elem_id="ranked", visible=False)
        attention = gradio.HTML(css_template=_asset("page.css"), js_on_load=_asset("page.js"), elem_id="attention")

        settings = [text, model, beams, penalty]
        private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
        choose = {"fn": page.choices, "inputs": [details, sentence], "outputs": [sentence, ranked], **private}
        explain = {"fn": page.explain, "inputs": [model, details, sentence, ranked], "outputs": attention, **private}
        gradio.on(
            [blocks.load, text.input, model.input, beams.input, penalty.input],
            page.translate,
            settings,
            [translation, details],
            api_name="translate",
            trigger_mode="always_last",
            show_progress="hidden",
        ).then(**choose).then(**explain)
        sentence.input(**choose).then(**explain)
        ranked.input(**explain)
        share.click(page.curl, settings, command, **private).then(None, command, None, js=COPY, **private)
    blocks.queue(default_concurrency_limit=64, max_size=256, api_open=False)
    return blocks


class Page:
    """What the page's controls do.

    Args:
        service: The service whose models the page shows.
    """

    def __init__(self, service: Service):
        self._service = service

    async def translate(
        self, text: str, model: str, num_beams: float, length_penalty: float
    ) -> tuple[str, list[dict[str, Any]]]:
        """Returns the translation, and the hypotheses of each sentence with their scores."""
        with errors_on_the_page():
            texts, translator = self._service.accept(self._query(text, model, num_beams, length_penalty))
            work = translate_text(texts[0], translator)
            translations = await within(self._service.limits.max_seconds, work)
        details = [
            {
                "sentence": sentence,
                "hypotheses": [
                    {"text": hypothesis.text, "score": hypothesis.score}
                    for hypothesis in hypotheses
                    if hypothesis.score is not None and math.isfinite(hypothesis.score)
                ],
            }
            for sentence, hypotheses in translator.results
        ]
        return translations[0], details

    def choices(self, details: list[dict[str, Any]] | None, number: int | None) -> tuple[Any, Any]:
        """Fills the menu of sentences, and the list of translations of the chosen one."""
        if not details:
            return gradio.update(choices=[], visible=False), gradio.update(choices=[], visible=False)
        number = number if number is not None and number < len(details) else 0
        sentences = [(part["sentence"], index) for index, part in enumerate(details)]
        hypotheses = [
            (f"{hypothesis['score']:.2f}  {hypothesis['text']}", rank)
            for rank, hypothesis in enumerate(details[number]["hypotheses"])
        ]
        menu = gradio.update(choices=sentences, value=number, visible=len(sentences) > 1)
        return menu, gradio.update(choices=hypotheses, value=0, visible=True)

    async def explain(
        self, model: str, details: list[dict[str, Any]] | None, number: int | None, rank: int | None
    ) -> str:
        """Draws the attention of one translation of one sentence."""
        if not details or number is None or rank is None:
            return ""
        part = details[number]
        sentence, translation = part["sentence"], part["hypotheses"][rank]["text"]
        with errors_on_the_page():
            self._service.limits.require_texts([sentence, translation])
            work = self._service.catalogue.named(model).attend(sentence, translation)
            hypothesis = await within(self._service.limits.max_seconds, work)
        return attention_html(sentence, translation, word_attention(sentence, hypothesis))

    def curl(self, text: str, model: str, num_beams: float, length_penalty: float, request: gradio.Request) -> Any:
        """Shows the command that gives the same translation."""
        with errors_on_the_page():
            query = self._query(text, model, num_beams, length_penalty)
        assert request.request is not None
        address = f"{request.request.base_url}translate"
        values = query.model_dump(exclude_none=True, exclude={"q", "format", "alternatives"})
        words = ["curl", address, *(word for name, value in values.items() for word in ("-d", f"{name}={value}"))]
        return gradio.update(value=shlex.join([*words, "--data-urlencode", f"q={text}"]), visible=True)

    def _query(self, text: str, model: str, num_beams: float, length_penalty: float) -> TranslationRequest:
        served = self._service.catalogue.named(model)
        chosen = {"num_beams": int(num_beams), "length_penalty": length_penalty}
        changed = {name: value for name, value in chosen.items() if value != served.defaults[name]}
        source, target = map(str, served.languages)
        parameters = {"q": text, "source": source, "target": target, "model": model, **changed}
        return checked(TranslationRequest, {**parameters, "alternatives": int(num_beams) - 1})


@contextmanager
def errors_on_the_page() -> Iterator[None]:
    """Shows an error of a request as a message on the page."""
    try:
        yield
    except RequestError as error:
        raise gradio.Error(error.detail, print_exception=False) from error


def attention_html(sentence: str, translation: str, attention: WordAttention) -> str:
    """The words of a sentence and of its translation, and a heat map of the attention between them.

    `page.js` draws lines between aligned words and follows the mouse.
    """
    aligned = [f' data-aligned="{index}"' for index in attention.alignment] or [""] * len(attention.target)
    source = _words(sentence, attention.source, "source", [""] * len(attention.source))
    target = _words(translation, attention.target, "target", aligned)
    return (
        f'<div class="attention"><p class="sentence source">{source}</p><p class="sentence target">{target}</p>'
        "<svg></svg>"
        '<p class="caption">Attention of the last decoder layer but one, mean of its heads: rows are words of the '
        'translation, columns words of the text. Point at a word.</p><p class="weight" aria-live="polite"></p>'
        f'<div class="map">{_heat_map(sentence, translation, attention)}</div></div>'
    )


def _words(text: str, spans: list[Span], side: str, attributes: list[str]) -> str:
    parts, done = [], 0
    for index, ((start, end), more) in enumerate(zip(spans, attributes, strict=True)):
        parts.append(escape(text[done:start]))
        parts.append(f'<span class="word" tabindex="0" data-{side}="{index}"{more}>{escape(text[start:end])}</span>')
        done = end
    return "".join([*parts, escape(text[done:])])


def _heat_map(sentence: str, translation: str, attention: WordAttention) -> str:
    columns = [*(sentence[start:end] for start, end in attention.source), END]
    head = "".join(f'<th data-source="{c}"><span>{escape(word)}</span></th>' for c, word in enumerate(columns))
    rows = []
    for row, (start, end) in enumerate(attention.target):
        cells = "".join(
            f'<td data-target="{row}" data-source="{column}" data-weight="{weight:.4f}" title="{weight:.2f}" '
            f'style="background-color: rgba(31, 84, 160, {weight**0.5:.3f})"></td>'
            for column, weight in enumerate(attention.weights[row].tolist())
        )
        rows.append(f'<tr><th data-target="{row}">{escape(translation[start:end])}</th>{cells}</tr>')
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _asset(name: str) -> str:
    return files("vanilla_transformer.serving").joinpath(name).read_text(encoding="utf-8")
