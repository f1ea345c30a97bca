import os
import re
import subprocess
import sys
from importlib.metadata import version

import yaml
from libretranslatepy import LibreTranslateAPI

from vanilla_transformer.serving.space import write_space

from .conftest import BUNDLED


def test_a_space_runs_with_its_own_copy_of_the_package(bundled, tmp_path):
    folder = tmp_path / "space"
    folder.mkdir()
    (folder / "model").symlink_to(BUNDLED)
    write_space(folder, "tiny")
    metadata = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    assert (metadata["sdk"], metadata["app_file"], metadata["sdk_version"]) == ("gradio", "app.py", version("gradio"))
    assert f"fastapi=={version('fastapi')}\n" in (folder / "requirements.txt").read_text()
    with (folder / "vanilla_transformer" / "serving" / "__init__.py").open("a") as file:
        file.write('import sys\nprint("this is the copy", file=sys.stderr)\n')
    environment = {**os.environ, "PORT": "0", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, str(folder / "app.py")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path) as space:
        try:
            log = ""
            while not (found := re.search(r"serving at (\S+)", log)) and (line := space.stderr.readline()):
                log += line
            assert "this is the copy" in log
            assert LibreTranslateAPI(found[1]).translate("A dog runs.", "en", "de") == bundled("A dog runs.")
        finally:
            space.kill()
