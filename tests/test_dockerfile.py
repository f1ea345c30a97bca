"""The Dockerfile can't be built in tests: what it names exists, and its commands are understood."""

import json
import re
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from starlette.routing import Route

from tests.test_small_runtime import packages_in_docs
from vanilla_transformer.command_line.dataclass_parser import DataclassParser
from vanilla_transformer.scripts import serve, translate
from vanilla_transformer.serving.routes import _api_routes


ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
STEPS = [tuple(line.split(maxsplit=1)) for line in TEXT.splitlines() if line and not line.startswith("#")]


def values(name: str) -> list[str]:
    return [value for step, value in STEPS if step == name]


def test_what_is_copied_exists_and_holds_the_package():
    words = [word for value in values("COPY") for word in value.split()[:-1]]
    assert all((ROOT / word).exists() for word in words)
    tops = set(
        re.findall(r'^"[\w.]+" = "(\w+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {"vanilla_transformer", "training", "scripts", "model_cards"} == tops <= set(words)


def test_its_packages_are_those_of_the_page_and_are_tested():
    (install,) = (value for value in values("RUN") if "constraints.txt" in value)
    assert install.split("constraints.txt")[1].split() == packages_in_docs()
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.split("==")[0]) for line in lines}
    assert set(packages_in_docs()) <= pinned


class ParsedError(Exception):
    pass


def test_its_commands_are_understood(monkeypatch):
    def stop(parser, options):
        raise ParsedError

    monkeypatch.setattr(DataclassParser, "dataclasses_of", stop)
    (command,) = map(json.loads, values("ENTRYPOINT"))
    (conversions,) = (value for value in values("RUN") if "|" in value)
    commands = [(part.split("|")[1].split(), translate) for part in conversions.split("&&")]
    for (program, verb, *words), module in ((command, serve), *commands):
        assert (program, verb) == ("vanilla", module.__name__.split(".")[-1])
        with pytest.raises(ParsedError):
            module.main(words)


def test_it_runs_as_a_user_and_reports_its_health():
    names = [step for step, _ in STEPS]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert values("USER") == ["user"]
    (check,) = values("HEALTHCHECK")
    port, path = re.search(r"http://127.0.0.1:(\d+)(/\w+)", check).groups()
    assert values("EXPOSE") == [port]

    class AnyService:
        def __getattr__(self, name):
            return lambda: None

    assert path in {route.path for route in _api_routes(AnyService()) if isinstance(route, Route)}
