"""A trained model as a repository of the Hub: written to a folder, checked, pushed.

The folder holds everything that `from_pretrained` needs, with this package installed or, under
`trust_remote_code=True`, without it: weights in safetensors, configuration, tokenizers, the model's own code, and the
paper's beam search as `custom_generate/`, which then is what `model.generate` does.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # of the client's own transport, which a lost connection raises
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .decoding_options import PAPER_DECODING, set_decoding
from .loading import LOADING_ERRORS, reason_of
from .tokenization_vanilla_transformer import TARGET
from .translation import Translator


WEIGHTS = "model.safetensors"
CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json")
NEEDED = (*CONFIGS, "README.md", "custom_generate/generate.py")
# What the check translates: that both sides say the same matters, not what they say.
SENTENCES = ("A man rides a bike.", "When does the train arrive in Berlin?", "Two dogs are playing in the snow.")

# Runs where this package can't be imported: with nothing but transformers and the folder itself.
WITHOUT_THIS_PACKAGE = """
import json, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
folder, target, texts = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
subfolder = {"subfolder": target} if target else {}
target_tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True, **subfolder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
found = [model.generate(**tokenizer(text, return_tensors="pt"))[0] for text in texts]
print(json.dumps(target_tokenizer.batch_decode(found, skip_special_tokens=True)))
"""


# --- writing ---


def export(
    model: PreTrainedModel,
    folder: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    card: str,
) -> None:
    """Writes a model as a repository of the Hub.

    Args:
        model: The model, in the type in which its weights shall be kept.
        folder: Where to.
        tokenizer: Its tokenizer, or the source's.
        target_tokenizer: The target's, for separate vocabularies.
        card: The text of README.md, metadata included.
    """
    folder = Path(folder)
    with _code_goes_along(model), _says_how_it_decodes(model):
        model.save_pretrained(folder)
    _save_tokenizer(tokenizer, folder)
    if target_tokenizer is not None:
        _save_tokenizer(target_tokenizer, folder / TARGET)
    (folder / "custom_generate").mkdir(exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("beam_search.py"), folder / "custom_generate" / "generate.py")
    (folder / "README.md").write_text(card, encoding="utf-8")


def _save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Without the traces of where it was loaded from, which the library writes too and would obey on the Hub."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name not in ("is_local", "local_files_only")}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def _code_goes_along(model: PreTrainedModel) -> Iterator[None]:
    """Within, saving the model writes its code beside it. The mark is taken back: other saves are none of ours."""
    classes = [(type(model.config), "AutoConfig"), (type(model), "AutoModelForSeq2SeqLM")]
    before = [each._auto_class for each, _ in classes]
    for each, auto_class in classes:
        each.register_for_auto_class(auto_class)
    try:
        yield
    finally:
        for (each, _), mark in zip(classes, before, strict=True):
            each._auto_class = mark
        model.config.__dict__.pop("auto_map", None)


@contextmanager
def _says_how_it_decodes(model: PreTrainedModel) -> Iterator[None]:
    """Within, the model's settings have what `Translator` would take for granted: others read nothing else."""
    before = model.generation_config.to_dict()
    set_decoding(model.generation_config)
    try:
        yield
    finally:
        model.generation_config.update(**{name: before.get(name) for name in PAPER_DECODING})


# --- checking ---


def require_whole(folder: str | Path) -> None:
    """Refuses a folder in which something is missing, cut short, or belongs to another model."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}: export a model first.")
    for name in NEEDED:
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}: export the model again.")
    for name in CONFIGS:
        try:
            json.loads((folder / name).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{folder / name} is not valid JSON ({error}): export the model again.") from error
    config = AutoConfig.from_pretrained(folder)
    for reference in (getattr(config, "auto_map", None) or {}).values():
        if not (folder / f"{reference.split('.')[0]}.py").is_file():
            raise ValueError(f"{folder} has no {reference.split('.')[0]}.py: export the model again.")
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(config)
    _require_weights(folder, {name: list(tensor.shape) for name, tensor in model.state_dict().items()}, model)
    for place, size in [(folder, config.vocab_size), (folder / TARGET, getattr(config, "target_vocab_size", None))]:
        if size is None:
            continue
        try:
            pieces = len(AutoTokenizer.from_pretrained(place))
        except LOADING_ERRORS as error:
            raise ValueError(
                f"The tokenizer in {place} can't be loaded ({reason_of(error)}): export the model again."
            ) from error
        if pieces > size:
            raise ValueError(f"The tokenizer in {place} has more pieces than the model's vocabulary of {size:,}.")


def _require_weights(folder: Path, expected: dict[str, list[int]], model: PreTrainedModel) -> None:
    found: dict[str, list[int]] = {}
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                found |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (no iterator)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path} is not a whole safetensors file ({error}): copy or export it again.") from error
    tied = model.all_tied_weights_keys.keys()
    for name, shape in expected.items():
        if name not in found and name not in tied:
            raise ValueError(f"{folder} has no weights {name}: they do not belong to its config.json.")
        if name in found and found[name] != shape:
            raise ValueError(f"{name} is {found[name]} in {folder}, but {shape} by its config.json.")


def _weight_files(folder: Path) -> list[Path]:
    index = folder / f"{WEIGHTS}.index.json"
    if not index.is_file():
        return [folder / WEIGHTS]
    return [
        folder / name for name in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    ]


def check(folder: str | Path, translator: Translator, texts: Sequence[str] = SENTENCES) -> list[str]:
    """Loads an exported folder in a process that can't see this package and returns what it makes of some texts.

    Raises if that is not what the model made of them before it was exported.

    Args:
        folder: The exported folder.
        translator: The model before.
        texts: What to translate.
    """
    require_whole(folder)
    expected = [translator(text) for text in texts]
    found = _translate_without_this_package(Path(folder), texts)
    for text, before, after in zip(texts, expected, found, strict=True):
        if before != after:
            raise ValueError(f"{folder} translates {text!r} as {after!r}, but the model it was made of as {before!r}.")
    return found


def _translate_without_this_package(folder: Path, texts: Sequence[str]) -> list[str]:
    target = TARGET if (folder / TARGET).is_dir() else None
    with tempfile.TemporaryDirectory() as modules:  # else an older copy of the code could be taken for the folder's
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_THIS_PACKAGE],
            input=json.dumps([str(folder.resolve()), target, list(texts)]),
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": modules},
            capture_output=True,
            text=True,
            cwd=modules,
        )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise ValueError(f"{folder} can't be loaded without this package: {last}")
    return json.loads(done.stdout.splitlines()[-1])


# --- pushing ---


def push(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool = True,
    revision: str | None = None,
    create_pr: bool = False,
    token: str | None = None,
    message: str = "Upload model",
) -> str:
    """Publishes a folder as a model on the Hub and returns the address of the commit.

    All files arrive in one commit: what fails leaves nothing half published, and what was already uploaded is not sent
    again by the next try.

    Args:
        folder: The exported folder.
        repo_id: Its name on the Hub, `user/model`; made if it is not there.
        private: Whether a new repository is private.
        revision: The branch to push to, made if it is not there; `main` by default.
        create_pr: Whether to open a pull request in place of a commit on the branch.
        token: An access token with write rights; by default the one of `hf auth login`, or of `HF_TOKEN`.
        message: The commit's message.
    """
    require_whole(folder)
    api = HfApi(token=token)
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None and not create_pr:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        # Unlike upload_folder, which may commit several times on the way.
        done = api.create_commit(
            repo_id,
            operations=[CommitOperationAdd(str(path.relative_to(folder)), path) for path in files_of(folder)],
            revision=revision,
            create_pr=create_pr,
            commit_message=message,
        )
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r} is no name for a repository: {error}") from error
    except (OSError, HTTPError, RuntimeError) as error:  # a RuntimeError is an upload that failed for good
        raise ValueError(f"{folder} was not pushed to {repo_id}: {_why(error)}") from error
    return done.pr_url if create_pr else done.commit_url


def files_of(folder: str | Path) -> list[Path]:
    """The files that are pushed: all but hidden ones."""
    folder = Path(folder)
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _why(error: Exception) -> str:
    """What a user can do about a push that failed."""
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, LocalTokenNotFoundError) or status == 401:
        return "the Hub asks for a valid token. Run `hf auth login`, or set HF_TOKEN, with a token that may write."
    if status == 403:
        return "the token has no right to write there. Use one that may write, or another name."
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set. Unset it to reach the Hub."
    if status is None:
        return (
            f"the Hub was not reached or the connection broke ({error}). Push again: what has arrived is not resent."
        )
    return str(error)
