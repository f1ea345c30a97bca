"""A saved tokenizer without transformers: what `Translator` needs of one, over `tokenizers` alone.

    tokenizer = read_tokenizers("multi30k-en-de-tiny")[0]
    tokenizer("A dog runs.")["input_ids"]

It reads folders whose tokenizer is a `tokenizer.json` and nothing else, as `train_tokenizer` makes them. The ids and
the texts are those of the library. `read_tokenizers` leaves any other tokenizer to the library.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET

from .saved_files import errors_in_one_sentence, find_file, read_object


SETTINGS = "tokenizer_config.json"
PLAIN_CLASSES = ("TokenizersBackend", "PreTrainedTokenizerFast")  # they add nothing to tokenizer.json
SPECIAL = ("pad_token", "bos_token", "eos_token", "unk_token", "mask_token")
# Settings that change no id and no text, or whose meaning is kept here.
KNOWN = {
    *SPECIAL,
    *("tokenizer_class", "backend", "is_local", "local_files_only", "model_max_length", "split_special_tokens"),
    *("source_lang", "target_lang", "name_or_path", "padding_side", "truncation_side", "model_input_names"),
}
NEUTRAL = {"clean_up_tokenization_spaces": False}  # settings that must have this value


class SavedTokenizer:
    """A tokenizer of `tokenizer.json` and `tokenizer_config.json`, with the library's names.

    Args:
        content: The text of `tokenizer.json`.
        settings: The content of `tokenizer_config.json`.
    """

    def __init__(self, content: str, settings: dict[str, Any]):
        self.init_kwargs = settings
        self._tokenizer = Tokenizer.from_str(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = bool(settings.get("split_special_tokens"))
        named = {name: settings[name] for name in SPECIAL if settings.get(name) is not None}
        self.all_special_ids = [self.convert_tokens_to_ids(token) for token in named.values()]
        self.unk_token, self.eos_token = named.get("unk_token"), named.get("eos_token")
        self.eos_token_id = None if self.eos_token is None else self.convert_tokens_to_ids(self.eos_token)

    def __call__(
        self, text: str | None = None, *, text_target: str | None = None, add_special_tokens: bool = True
    ) -> dict[str, list[int]]:
        """Returns `input_ids` of a text, of the source or of the target."""
        words = text if text_target is None else text_target
        return {"input_ids": self._tokenizer.encode(words or "", add_special_tokens=add_special_tokens).ids}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        return self._tokenizer.decode_batch(list(rows), skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, token: str) -> int:
        token_id = self._tokenizer.token_to_id(token)
        if token_id is None:
            raise ValueError(f"The tokenizer has no token {token!r}: restore its files or download them again.")
        return token_id

    def convert_ids_to_tokens(self, token_id: int) -> str:
        return str(self._tokenizer.id_to_token(token_id))

    def get_vocab(self) -> dict[str, int]:
        return self._tokenizer.get_vocab(with_added_tokens=True)

    def get_added_vocab(self) -> dict[str, int]:
        return {token.content: token_id for token_id, token in self._tokenizer.get_added_tokens_decoder().items()}

    def save_pretrained(self, folder: str | Path) -> None:
        raise ValueError("This tokenizer was read without transformers and is not saved: copy its files.")


def read_tokenizers(name_or_path: str | Path, **options: Any) -> "tuple[SavedTokenizer, SavedTokenizer | None] | None":
    """Reads the joint or source tokenizer of a model, and the target's if there is one.

    Args:
        name_or_path: Folder, or name on the Hub.
        options: Options of `from_pretrained` that say where the files are.

    Returns:
        The tokenizers; `None` if one of them is more than a `tokenizer.json`, so that only the library can read it.
    """
    if (tokenizer := _read(name_or_path, "", options)) is None:
        return None
    if find_file(name_or_path, f"{TARGET}/{SETTINGS}", required=False, **options) is None:
        return tokenizer, None
    target = _read(name_or_path, f"{TARGET}/", options)
    return None if target is None else (tokenizer, target)


def _read(name_or_path: str | Path, folder: str, options: dict[str, Any]) -> SavedTokenizer | None:
    path = find_file(name_or_path, folder + SETTINGS, required=False, **options)
    content = find_file(name_or_path, f"{folder}tokenizer.json", required=False, **options)
    if path is None or content is None:
        return None
    with errors_in_one_sentence(name_or_path):
        settings = read_object(path)
        if not _is_plain(settings):
            return None
        text = content.read_text(encoding="utf-8")
        special = {token["content"] for token in json.loads(text).get("added_tokens", []) if token["special"]}
        named = [settings[name] for name in SPECIAL if settings.get(name) is not None]
        return SavedTokenizer(text, settings) if special.issuperset(map(str, named)) else None


def _is_plain(settings: dict[str, Any]) -> bool:
    """Whether the settings change nothing about what `tokenizer.json` does, as far as they are known here."""
    others = {name: value for name, value in settings.items() if name not in KNOWN and value not in (None, [], {})}
    return settings.get("tokenizer_class") in PLAIN_CLASSES and others.items() <= NEUTRAL.items()
