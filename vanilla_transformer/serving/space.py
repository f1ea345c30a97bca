"""The server as a Hugging Face Space: a folder that the Hub builds and runs as a container.

The folder holds the model, the part of this package that serves it, an `app.py` and a Dockerfile. It also runs at
home: `python app.py` in the folder serves the same page at http://127.0.0.1:7860.
"""

import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


MODEL, PACKAGE, APP, PORT = "model", "vanilla_transformer", "app.py", 7860
# What the package imports to serve a model in torch.
REQUIREMENTS = (
    *("torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "sentencex"),
    *("starlette", "pydantic", "uvicorn", "prometheus-client", "python-multipart", "turbohtml"),
)

PROGRAM = f'''"""The page and the API of vanilla serve, for the model in this folder."""

import os
from pathlib import Path

from vanilla_transformer.serving.routes import Service
from vanilla_transformer.serving.served_models import Catalogue, ServedModel
from vanilla_transformer.serving.server import serve


if __name__ == "__main__":
    model = ServedModel.from_pretrained(Path(__file__).parent / "{MODEL}", name={{name!r}})
    # A container is reached from outside; elsewhere the page is for this machine only.
    host = os.environ.get("HOST", "127.0.0.1")
    serve(Service(Catalogue([model])), host=host, port=int(os.environ.get("PORT", "{PORT}")))
'''

DOCKERFILE = f"""FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim
RUN useradd --create-home --uid 1000 user
WORKDIR /home/user/app
COPY requirements.txt .
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -r requirements.txt
COPY --chown=user . .
USER user
ENV HOST=0.0.0.0 PORT={PORT} HF_HUB_OFFLINE=1
EXPOSE {PORT}
CMD ["python", "{APP}"]
"""

README = f"""---
title: {{name}}
sdk: docker
app_port: {PORT}
---

Translates with the model in `{MODEL}/`. The API is LibreTranslate's: POST to `/translate`; `/docs` describes the rest.
"""


def write_space(folder: str | Path, name: str) -> None:
    """Makes a Space of a folder that has a model in its subfolder `model`.

    Args:
        folder: The folder.
        name: Name of the model, which the page shows.
    """
    folder = Path(folder)
    # An installed package has training/, scripts/ and model_cards/ as subfolders. They do not serve models.
    left_out = shutil.ignore_patterns("__pycache__", "training", "scripts", "model_cards")
    shutil.copytree(Path(__file__).parent.parent, folder / PACKAGE, ignore=left_out)
    requirements = "".join(f"{package}=={_version(package)}\n" for package in REQUIREMENTS)  # tested together
    files = {APP: PROGRAM.format(name=name), "requirements.txt": requirements, "Dockerfile": DOCKERFILE}
    for path, text in {**files, "README.md": README.format(name=name)}.items():
        (folder / path).write_text(text, encoding="utf-8")


def _version(package: str) -> str:
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError as error:
        raise ImportError(f"A Space needs {package}: pip install 'vanilla-transformer[serve]'") from error
