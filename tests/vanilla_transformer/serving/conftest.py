"""Servers for tests: with an engine that takes no time, and with the bundled model."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import GenerationConfig

from vanilla_transformer import Hypothesis, Translator
from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.serving.access_limits import Limits
from vanilla_transformer.serving.routes import Service
from vanilla_transformer.serving.served_models import Catalogue, ServedModel
from vanilla_transformer.serving.server import Server


BUNDLED = Path(__file__).parents[3] / "model_cards" / "multi30k-en-de-tiny"


class UpperCaseTranslator:
    """In place of a `Translator`: upper case is the translation, and each word attends to itself.

    Args:
        seconds: Time for a batch.
    """

    def __init__(self, seconds: float = 0.0):
        self.seconds, self.batches, self.directions = seconds, [], ()
        self.model = SimpleNamespace(generation_config=GenerationConfig(num_beams=4))
        self.backend = SimpleNamespace(longest_input=None, require_support=lambda call: None)

    def translate(self, texts, *, n_best=1, **options):
        self.batches.append(list(texts))
        time.sleep(self.seconds)
        for text in texts:
            if text == "unlucky":
                raise ValueError("secret of /etc/passwd")
        return [[Hypothesis(text.upper() + "!" * rank, -1.0 - rank) for rank in range(n_best)] for text in texts]

    marks_capitals = False

    def number_of_tokens(self, text, *, target=False):
        return len(text.split()) + 1

    def attend(self, source, target):
        read, written = (*source.split(), "</s>"), (*target.split(), "</s>")
        weights = torch.eye(len(written), len(read))[None, None]
        return Hypothesis(
            target, source_tokens=read, tokens=written, attention=weights, alignment_weights=weights[0, 0]
        )


def make_service(*, translator=None, languages=("en", "de"), name="upper", keys=None, model_fields=None, **limits):
    """A service with one model; keywords are limits."""
    limits = Limits(**limits)
    model = ServedModel(
        name, translator or UpperCaseTranslator(), Languages(*languages), limits=limits, **(model_fields or {})
    )
    return Service(Catalogue([model]), limits, **({} if keys is None else {"keys": keys}))


@contextmanager
def running(app, limits: Limits | None = None, **options) -> Iterator[str]:
    """A server in a thread; gives its address."""
    server = Server(app, limits or Limits(), port=0, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield server.address
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def bundled() -> Translator:
    return Translator.from_pretrained(BUNDLED, backend="torch")


@contextmanager
def process(*options, models=(BUNDLED,), python=("-m", "vanilla_transformer.scripts.serve")):
    """`vanilla serve`, by default with the bundled model; gives the process and its address."""
    command = [sys.executable, *python, "--model", *map(str, models), "--port", "0"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as server:
        try:
            for line in server.stderr:
                if found := re.search(r"serving at (\S+)", line):
                    break
            yield server, found[1]
        finally:
            server.kill()


def resident(pid):
    """Memory of a process in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
