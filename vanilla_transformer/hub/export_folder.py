"""Writes a trained model as a Hub repository.

The folder holds everything that `from_pretrained` needs, with this package installed or, with
`trust_remote_code=True`, without it: weights in safetensors, configuration, tokenizers and the model's code. Its
generation config names the model's search, so that `generate` gives the translations of `Translator`.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_NAME

from vanilla_transformer.models.searches import store_options
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET

from .adapters import merged
from .check_export import SENTENCES
from .loading import require_finite


def export(
    model: PreTrainedModel,
    folder: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    card: str,
    compact: bool = False,
) -> None:
    """Writes a model as a Hub repository.

    Args:
        model: The model, in the type that its weights are to be stored in. A LoRA adapter is merged into them.
        folder: The folder to write.
        tokenizer: The joint or source tokenizer.
        target_tokenizer: The target tokenizer, for separate vocabularies.
        card: The text of README.md, metadata included.
        compact: Whether the file has the weights in float16. They are float32 again when they are loaded, rounded.
    """
    folder = Path(folder)
    model = merged(model, tokenizer, SENTENCES)
    with _storing_options(model):
        model.save_pretrained(folder)
    if compact:
        _store_as_float16(folder / SAFE_WEIGHTS_NAME)
    _save_tokenizer(tokenizer, folder)
    if target_tokenizer is not None:
        _save_tokenizer(target_tokenizer, folder / TARGET)
    (folder / "README.md").write_text(card, encoding="utf-8")


def round_weights(model: PreTrainedModel) -> None:
    """Rounds the weights of a model in memory to what a compact file has."""
    for weight in model.parameters():
        weight.data = weight.data.half().to(weight.dtype)
    require_finite(model, "The model in float16")


def _store_as_float16(path: Path) -> None:
    if not path.is_file():
        raise ValueError(
            f"{path.name} is in several parts: compact weights are for small models, leave out --compact."
        )
    tensors = {
        name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in load_file(path).items()
    }
    save_file(tensors, path, metadata={"format": "pt"})


def _save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Saves without the keys that say where a tokenizer was loaded from: the library would obey them on the Hub."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in config.items() if name not in ("is_local", "local_files_only")}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def _storing_options(model: PreTrainedModel) -> Iterator[None]:
    """Inside, the generation config states the options of the search that `Translator` uses by default."""
    before = copy.deepcopy(model.generation_config)
    store_options(model)
    try:
        yield
    finally:
        model.generation_config = before
