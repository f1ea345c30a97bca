"""Writes a trained model as a Hub repository, checks it and pushes it.

The folder holds everything that `from_pretrained` needs, with this package installed or, with
`trust_remote_code=True`, without it: weights in safetensors, configuration, tokenizers, the model's code, and its
search as `custom_generate/`, which `model.generate` then uses.
"""

import copy
import inspect
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.translation.decoding_options import set_decoding
from vanilla_transformer.translation.searches import search_of


# The modules that a model's repository may contain. They import only each other, torch and the Hub's libraries.
EXPORTED_MODULES = (
    *("presets", "spelling", "positions", "scores", "full_attention", "window_attention", "longformer_attention"),
    *("lsh_attention", "patterns", "translation_config", "reversible"),
    *("configuration_vanilla_transformer", "configuration_rnn_search", "configuration_mask_predict"),
    *("dropout", "loss", "beam_search", "decoder_step", "mask_predict", "translation_head"),
    *("modeling_vanilla_transformer", "modeling_rnn_search", "modeling_mask_predict"),
)


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
