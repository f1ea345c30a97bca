"""The page as a Hugging Face Space: a folder that the Hub runs as it is.

The folder holds the model, the part of this package that serves it, and an `app.py`. It also runs at home:
`python app.py` in the folder serves the same page at http://127.0.0.1:7860.
"""

import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


MODEL, PACKAGE, APP = "model", "vanilla_transformer", "app.py"
# What the package imports to serve a model in torch. The Hub installs Gradio by the version in README.md.
REQUIREMENTS = (
    *("torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "sentencex"),
    *("fastapi", "uvicorn", "starlette", "prometheus-client", "python-multipart"),
)

PROGRAM = '''"""The page and the API of vanilla serve, for the model in this folder."""

import os
from pathlib import Path

from vanilla_transformer.serving.routes import Service
from vanilla_transformer.serving.served_models import Catalogue, ServedModel
from vanilla_transformer.serving.server import serve


if __name__ == "__main__":
    model = ServedModel.from_pretrained(Path(__file__).parent / "model", name={name!r})
    # A Space is reached from outside of its machine; elsewhere the page is for this machine only.
    host = "0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1"
    serve(Service(Catalogue([model])), host=host, port=int(os.environ.get("PORT", "7860")))
'''

README = """---
title: {name}
sdk: gradio
sdk_version: {gradio}
python_version: "3.11"
app_file: {app}
---

Translates with the model in `{model}/`. The API is LibreTranslate's: POST to `/translate`.
"""


def write_space(folder: str | Path, name: str) -> None:
    """Makes a Space of a folder that has a model in its subfolder `model`.

    Args:
        folder: The folder.
        name: Name of the model, which the page shows.
    """
    folder = Path(folder)
    package = Path(__file__).parent.parent
    # An installed package has training/, scripts/ and model_cards/ as subfolders. They do not serve models.
    left_out = shutil.ignore_patterns("__pycache__", "training", "scripts", "model_cards")
    shutil.copytree(package, folder / PACKAGE, ignore=left_out)
    (folder / APP).write_text(PROGRAM.format(name=name), encoding="utf-8")
    (folder / "requirements.txt").write_text(_requirements(), encoding="utf-8")
    readme = README.format(name=name, gradio=_version("gradio"), app=APP, model=MODEL)
    (folder / "README.md").write_text(readme, encoding="utf-8")


def _requirements() -> str:
    """The versions of this environment, which were tested together."""
    return "".join(f"{package}=={_version(package).partition('+')[0]}\n" for package in REQUIREMENTS)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise ImportError(f"A Space needs {package}: pip install 'vanilla-transformer[serve]'") from error
