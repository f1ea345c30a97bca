"""Serve models: a web page to try them, and an HTTP API that clients of LibreTranslate understand.

    vanilla serve --model runs/demo/model
    vanilla serve --model runs/en-de/model runs/de-en/model --backend ctranslate2 --quantization int8 --port 8000
    curl http://127.0.0.1:8000/translate -d q="A dog runs." -d source=en -d target=de

The page is at /, the documentation of the API at /docs, counters for Prometheus at /metrics. Requests that arrive
within a few milliseconds are translated together. The server listens on this machine only, unless --host says
otherwise: then set API keys, in a file (--api_keys) or in the environment (VANILLA_API_KEYS, separated by commas).

Ctrl-C or SIGTERM stops the server after it has answered all requests that it had accepted.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from vanilla_transformer.command_line.inference_arguments import DecodingArguments, LoadingArguments
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.engines.hardware import set_number_of_threads
from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.hub.saved_files import EVERYDAY, members_of


if TYPE_CHECKING:  # optional dependencies
    from vanilla_transformer.serving.routes import Service


@dataclass
class ServeArguments:
    """What to serve, and where."""

    model: list[str] = key(
        [EVERYDAY],
        "Folders of models, or their names on the Hub. The bundled everyday translates everyday sentences between "
        "English and German, French, Spanish and Chinese; multi30k-en-de-tiny English image captions into German.",
    )
    languages: list[str] = key(
        [], "Languages of each model, for example en-de. Only needed for models that do not record theirs."
    )
    host: str = key("127.0.0.1", "Address to listen on; 0.0.0.0 for all networks of this machine.")
    port: int = key(8000, "Port to listen on; 0 for any that is free.")
    threads: int | None = key(None, "Threads of the engine; default: one for each core.")
    page: bool = key(True, "Show a web page at /.")
    cors_origins: list[str] = key([], "Origins whose web pages may call the API from a browser; * for all.")
    trusted_proxies: list[str] = key(
        [],
        "Addresses or networks of proxies whose X-Forwarded-For names the client; default: none.",
    )
    access_log: str | None = key(
        None, "File that gets a line of JSON for each request: time, method, path, status and seconds."
    )
    api_keys: str | None = key(None, "File with API keys, one a line. With keys, the page asks for one too.")


@dataclass
class LimitArguments:
    """What clients may ask for."""

    max_characters: int = key(10_000, "Characters in a request.")
    max_texts: int = key(128, "Texts in a request.")
    max_sentence_tokens: int = key(512, "Tokens in a sentence; its time grows with the square of its length.")
    max_seconds: float = key(30.0, "Seconds until a request is answered, or refused with status 503.")
    max_waiting: int = key(4096, "Sentences that wait; more are refused with status 503.")
    max_connections: int = key(1000, "Connections that are open at once.")
    requests_per_minute: int | None = key(None, "Requests of one address in a minute; default: no limit.")
    batch_milliseconds: float = key(5.0, "How long a sentence waits for others to be translated with it.")
    batch_sentences: int = key(128, "Sentences that are translated together.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        arguments = [ServeArguments, LimitArguments, DecodingArguments, LoadingArguments]
        serve(*parse_arguments(arguments, __doc__, argv))


def serve(
    options: ServeArguments, limits: LimitArguments, decoding: DecodingArguments, loading: LoadingArguments
) -> None:
    """Loads the models and answers requests until the process is told to stop."""
    require_serve()
    from vanilla_transformer.serving.server import serve as serve_site

    if options.threads is not None:
        set_number_of_threads(options.threads)
    serve_site(
        make_service(options, limits, decoding, loading),
        host=options.host,
        port=options.port,
        page=options.page,
        cors_origins=options.cors_origins,
        trusted_proxies=options.trusted_proxies,
        access_log=options.access_log,
    )


def make_service(
    options: ServeArguments, limits: LimitArguments, decoding: DecodingArguments, loading: LoadingArguments
) -> "Service":
    """Loads the models."""
    from vanilla_transformer.serving.access_limits import ApiKeys, Limits
    from vanilla_transformer.serving.batching import Batching
    from vanilla_transformer.serving.monitoring import Metrics
    from vanilla_transformer.serving.routes import Service
    from vanilla_transformer.serving.served_models import Catalogue, ServedModel

    keys, metrics = ApiKeys.read(options.api_keys), Metrics()
    values = dict(vars(limits))
    batching = Batching(values.pop("batch_milliseconds") / 1000, values.pop("batch_sentences"))
    request_limits = Limits(**values)
    models = [
        ServedModel.from_pretrained(
            model,
            languages,
            loading=vars(loading),
            decoding=vars(decoding),
            limits=request_limits,
            batching=batching,
            observe_batch=metrics.batches.observe,
        )
        for model, languages in zip(models_of(options), languages_of_models(options), strict=True)
    ]
    return Service(Catalogue(models), request_limits, keys, metrics)


def models_of(options: ServeArguments) -> list[str]:
    """The models, with those of a family one by one."""
    return [member for name in options.model for member in members_of(name)]


def languages_of_models(options: ServeArguments) -> list[Languages]:
    """The languages that are given for each model."""
    models = models_of(options)
    if not options.languages:
        return [Languages()] * len(models)
    if len(options.languages) != len(models):
        raise ValueError(
            f"--languages names {len(options.languages)} pairs for {len(models)} models: give one for each."
        )
    pairs = [pair.split("-") for pair in options.languages]
    for pair in pairs:
        if len(pair) != 2 or not all(pair):
            raise ValueError(f"--languages {'-'.join(pair)!r} must be two languages, for example en-de.")
    return [Languages(*pair) for pair in pairs]


def require_serve() -> None:
    for package in ("starlette", "pydantic", "uvicorn", "prometheus_client", "turbohtml"):
        if find_spec(package) is None:
            raise ImportError(f"vanilla serve needs {package}: pip install 'vanilla-transformer[serve]'")


if __name__ == "__main__":
    main()
