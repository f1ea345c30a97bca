"""Writes a trained model as a Hub repository, checks it and pushes it.

The folder holds everything that `from_pretrained` needs, with this package installed or, with
`trust_remote_code=True`, without it: weights in safetensors, configuration, tokenizers, the model's code, and its
search as `custom_generate/`, which `model.generate` then uses.
"""

import copy
import inspect
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
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from .decoding_options import set_decoding
from .loading import LOADING_ERRORS, load_config, read_object, reason_of
from .searches import search_of
from .tokenization_vanilla_transformer import TARGET
from .translation import Translator


# The modules that a model's repository may contain. They import only each other, torch and the Hub's libraries.
EXPORTED_MODULES = (
    *("presets", "spelling", "positions", "scores", "full_attention", "window_attention", "longformer_attention"),
    *("lsh_attention", "patterns", "translation_config", "reversible"),
    *("configuration_vanilla_transformer", "configuration_rnn_search", "configuration_mask_predict"),
    *("dropout", "loss", "beam_search", "decoder_step", "mask_predict", "translation_head"),
    *("modeling_vanilla_transformer", "modeling_rnn_search", "modeling_mask_predict"),
)
WEIGHTS = "model.safetensors"
CONFIGS = ("config.json", "generation_config.json", "tokenizer_config.json")
NEEDED = (*CONFIGS, "README.md", "custom_generate/generate.py")
# Sentences that the check translates before and after the export. Only the equality matters.
SENTENCES = ("A man rides a bike.", "When does the train arrive in Berlin?", "Two dogs are playing in the snow.")

# This program can't import this package: it has transformers and the folder, nothing else.
WITHOUT_THIS_PACKAGE = """
import json, sys
sys.modules["vanilla_transformer"] = None
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
folder, target, texts = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
subfolder = {"subfolder": target} if target else {}
target_tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True, **subfolder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
outputs = [model.generate(**tokenizer(text, return_tensors="pt"))[0] for text in texts]
print(json.dumps(target_tokenizer.batch_decode(outputs, skip_special_tokens=True)))
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
    """Writes a model as a Hub repository.

    Args:
        model: The model, in the type that its weights are to be stored in.
        folder: The folder to write.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target tokenizer, for separate vocabularies.
        card: The text of README.md, metadata included.
    """
    folder = Path(folder)
    with _saving_code(model), _saving_decoding_options(model):
        model.save_pretrained(folder)
    _save_tokenizer(tokenizer, folder)
    if target_tokenizer is not None:
        _save_tokenizer(target_tokenizer, folder / TARGET)
    (folder / "custom_generate").mkdir(exist_ok=True)
    shutil.copyfile(inspect.getfile(search_of(model)), folder / "custom_generate" / "generate.py")
    (folder / "README.md").write_text(card, encoding="utf-8")


def _save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Saves without the keys that say where a tokenizer was loaded from: the library would obey them on the Hub."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name not in ("is_local", "local_files_only")}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def _saving_code(model: PreTrainedModel) -> Iterator[None]:
    """Inside, saving the model also writes its code. Later saves keep the library's behaviour."""
    auto_classes = {type(model.config): "AutoConfig", type(model): "AutoModelForSeq2SeqLM"}
    before = {cls: cls._auto_class for cls in auto_classes}
    for cls, auto_class in auto_classes.items():
        cls.register_for_auto_class(auto_class)
    try:
        yield
    finally:
        for cls, auto_class in before.items():
            cls._auto_class = auto_class
        model.config.__dict__.pop("auto_map", None)


@contextmanager
def _saving_decoding_options(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the generation config states the options of the search that `Translator` uses by default."""
    before = copy.deepcopy(model.generation_config)
    set_decoding(model)
    try:
        yield
    finally:
        model.generation_config = before


# --- checking ---


def require_whole(folder: str | Path) -> None:
    """Refuses a folder with files that are missing, incomplete, or of another model."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"There is no folder {folder}: export a model first.")
    for name in NEEDED:
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}: export the model again.")
    for name in CONFIGS:
        read_object(folder / name)
    config = load_config(folder)
    for reference in (getattr(config, "auto_map", None) or {}).values():
        if not (folder / f"{reference.split('.')[0]}.py").is_file():
            raise ValueError(f"{folder} has no {reference.split('.')[0]}.py: export the model again.")
    with torch.device("meta"):
        model = AutoModelForSeq2SeqLM.from_config(config)
    _require_weights(folder, {name: list(tensor.shape) for name, tensor in model.state_dict().items()}, model)
    _require_tokenizer(folder, config.vocab_size)
    if getattr(config, "target_vocab_size", None) is not None:
        _require_tokenizer(folder / TARGET, config.target_vocab_size)


def _require_tokenizer(folder: Path, vocab_size: int) -> None:
    try:
        tokens = len(AutoTokenizer.from_pretrained(folder, trust_remote_code=False))
    except LOADING_ERRORS as error:
        raise ValueError(
            f"The tokenizer in {folder} can't be loaded ({reason_of(error)}): export the model again."
        ) from error
    if tokens > vocab_size:
        raise ValueError(f"The tokenizer in {folder} has more tokens than the model's vocabulary of {vocab_size:,}.")


def _require_weights(folder: Path, expected: dict[str, list[int]], model: PreTrainedModel) -> None:
    shapes: dict[str, list[int]] = {}
    for path in _weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                shapes |= {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (no iterator)
        except (OSError, SafetensorError) as error:
            raise ValueError(
                f"{path} is not a complete safetensors file ({error}): copy or export it again."
            ) from error
    tied = model.all_tied_weights_keys.keys()
    for name, shape in expected.items():
        if name not in shapes and name not in tied:
            raise ValueError(f"{folder} has no weights {name}: weights and config.json do not belong together.")
        if name in shapes and shapes[name] != shape:
            raise ValueError(f"{name} is {shapes[name]} in {folder}, but {shape} by its config.json.")


def _weight_files(folder: Path) -> list[Path]:
    index = folder / f"{WEIGHTS}.index.json"
    if not index.is_file():
        return [folder / WEIGHTS]
    return [folder / name for name in sorted(set(read_object(index).get("weight_map", {}).values()))]


def check(folder: str | Path, translator: Translator, texts: Sequence[str] = SENTENCES) -> list[str]:
    """Translates with an exported folder, in a process that can't import this package, and returns the translations.

    Raises a `ValueError` if they differ from those of the model before the export.

    Args:
        folder: The exported folder.
        translator: The model before the export.
        texts: The sentences to translate.
    """
    require_whole(folder)
    expected = [translator(text) for text in texts]
    translations = _translate_without_this_package(Path(folder), texts)
    for text, before, after in zip(texts, expected, translations, strict=True):
        if before != after:
            raise ValueError(f"{folder} translates {text!r} as {after!r}, but before the export it was {before!r}.")
    return translations


def _translate_without_this_package(folder: Path, texts: Sequence[str]) -> list[str]:
    target = TARGET if (folder / TARGET).is_dir() else None
    with tempfile.TemporaryDirectory() as modules:  # a new cache: it must not have an older copy of the code
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_THIS_PACKAGE],
            input=json.dumps([str(folder.resolve()), target, list(texts)]),
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": modules},
            capture_output=True,
            text=True,
            cwd=modules,
        )
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise ValueError(f"{folder} can't be loaded without this package: {reason}")
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
    """Publishes a folder as a model on the Hub and returns the URL of the commit.

    All files arrive in one commit, so a failed push publishes nothing. A second try does not upload files again that
    have already arrived.

    Args:
        folder: The exported folder.
        repo_id: Its name on the Hub, `user/model`. The repository is created if it does not exist.
        private: Whether a new repository is private.
        revision: The branch to push to, created if it does not exist; `main` by default.
        create_pr: Whether to open a pull request instead of a commit on the branch.
        token: An access token with write permission; by default that of `hf auth login` or `HF_TOKEN`.
        message: The commit message.
    """
    require_whole(folder)
    api = HfApi(token=token)
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None and not create_pr:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        # upload_folder may make several commits.
        done = api.create_commit(
            repo_id,
            operations=[CommitOperationAdd(str(path.relative_to(folder)), path) for path in files_of(folder)],
            revision=revision,
            create_pr=create_pr,
            commit_message=message,
        )
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r} is not a valid repository name: {error}") from error
    except (OSError, HTTPError, RuntimeError) as error:  # a RuntimeError is an upload that finally failed
        raise ValueError(f"{folder} was not pushed to {repo_id}: {_why(error)}") from error
    return done.pr_url if create_pr else done.commit_url


def files_of(folder: str | Path) -> list[Path]:
    """The files that are pushed: all except hidden ones."""
    folder = Path(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _why(error: Exception) -> str:
    """Why a push failed, and what the user can do about it."""
    status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
    if isinstance(error, LocalTokenNotFoundError) or status == 401:
        return "the Hub needs a valid token. Run `hf auth login`, or set HF_TOKEN, with a token that can write."
    if status == 403:
        return "the token can't write there. Use a token with write permission, or another name."
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set. Unset it to reach the Hub."
    if status is None:
        return f"the Hub was not reached or the connection broke ({error}). Push again: nothing is sent twice."
    return str(error)
