import os
import re
import subprocess
import sys
from importlib.metadata import version

import pytest
import yaml
from libretranslatepy import LibreTranslateAPI

from vanilla_transformer.serving.space import write_space

from .conftest import BUNDLED


@pytest.fixture
def space(tmp_path):
    """A Space with the bundled model."""
    folder = tmp_path / "space"
    folder.mkdir()
    (folder / "model").symlink_to(BUNDLED)
    write_space(folder, "tiny")
    return folder


def test_the_folder_has_all_that_the_hub_needs(space):
    metadata = yaml.safe_load((space / "README.md").read_text().split("---")[1])
    assert metadata == {"title": "tiny", "sdk": "docker", "app_port": 7860}
    assert f"starlette=={version('starlette')}\n" in (space / "requirements.txt").read_text()
    copied = {path.name for path in (space / "vanilla_transformer" / "serving").rglob("*")}
    assert {"routes.py", "index.html", "translate.js", "drawing.js", "style.css", "server.py"} <= copied
    assert not {"training", "scripts", "__pycache__"} & {path.name for path in space.rglob("*")}


def test_the_container_is_what_the_hub_runs(space):
    lines = [line.split(maxsplit=1) for line in (space / "Dockerfile").read_text().splitlines()]
    assert [name for name, _ in lines if name in ("FROM", "USER", "CMD")] == ["FROM", "USER", "CMD"]  # not as root
    settings = dict(pair.split("=") for name, value in lines if name == "ENV" for pair in value.split())
    assert (settings["HOST"], settings["PORT"]) == ("0.0.0.0", "7860")
    copied = [value.split()[0] for name, value in lines if name == "COPY" and not value.startswith("--")]
    assert all((space / path).exists() for path in copied)
    compile((space / "app.py").read_text(), "app.py", "exec")


@pytest.mark.slow
def test_a_space_runs_with_its_own_copy_of_the_package(bundled, space):
    with (space / "vanilla_transformer" / "serving" / "__init__.py").open("a") as file:
        file.write('import sys\nprint("this is the copy", file=sys.stderr)\n')
    environment = {**os.environ, "PORT": "0", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(space / "app.py")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=space.parent) as server:
        try:
            log = ""
            while not (found := re.search(r"serving at (\S+)", log)) and (line := server.stderr.readline()):
                log += line
            assert "this is the copy" in log
            assert LibreTranslateAPI(found[1]).translate("A dog runs.", "en", "de") == bundled("A dog runs.")
        finally:
            server.kill()
