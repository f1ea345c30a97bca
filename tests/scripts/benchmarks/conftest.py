"""A small corpus, and benchmarks that stay in one process."""

import random
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial

import pytest
from matplotlib.figure import Figure

from vanilla_transformer.scripts.benchmarks import end_to_end
from vanilla_transformer.scripts.benchmarks import training_speed as train


@pytest.fixture
def text(tmp_path):
    draw = random.Random(0)
    for language in ("en", "de"):
        lines = [" ".join(draw.choice("abcdefgh") for _ in range(draw.randint(2, 9))) for _ in range(80)]
        (tmp_path / f"train.{language}").write_text("\n".join(lines) + "\n")
    return str(tmp_path / "train")


@pytest.fixture
def in_this_process(monkeypatch):
    """Replaces new processes, which take seconds to start. Other tests start real ones."""
    monkeypatch.setattr(end_to_end, "in_fresh_process", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(train, "worker_process", lambda *preparation: nullcontext(InThisProcess(*preparation)))


class InThisProcess:
    """Prepares itself before each call, because all systems share this process."""

    def __init__(self, prepare, *arguments):
        self.prepare = partial(prepare, *arguments)

    def submit(self, function) -> Future:
        self.prepare()
        future = Future()
        future.set_result(function())
        return future


@pytest.fixture
def rows() -> Callable[..., dict[str, list[str]]]:
    """Reads rows of a printed table by their names: the words after each name."""

    def read(printed: str, *names: str) -> dict[str, list[str]]:
        lines = {name: next(line for line in printed.splitlines() if line.startswith(f"{name}  ")) for name in names}
        return {name: line.removeprefix(name).split() for name, line in lines.items()}

    return read


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were drawn, in place of files."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *args, **options: figures.append(figure))
    return figures
