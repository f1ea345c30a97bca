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
from vanilla_transformer.safe_files.atomic_writes import write_json

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


class Encoding(dict):
    """`input_ids` of a text or of several, as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(f"The encoding has no {name!r}, only {', '.join(self)}.") from error


class SavedTokenizer:
    """A tokenizer of `tokenizer.json` and `tokenizer_config.json`, with the library's names.

    All engines have it for the models that it can read. With `return_tensors`, its answers are the library's own.

    Args:
        content: The text of `tokenizer.json`.
        settings: The content of `tokenizer_config.json`.
    """

    def __init__(self, content: str, settings: dict[str, Any]):
        self.init_kwargs, self._content = settings, content
        self._tokenizer = Tokenizer.from_str(content)
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = bool(settings.get("split_special_tokens"))
        named = {name: settings[name] for name in SPECIAL if settings.get(name) is not None}
        self.all_special_ids = [self.convert_tokens_to_ids(token) for token in named.values()]
        self.unk_token, self.eos_token, self.pad_token = (named.get(f"{name}_token") for name in ("unk", "eos", "pad"))
        ids = (
            None if token is None else self.convert_tokens_to_ids(token) for token in (self.eos_token, self.pad_token)
        )
        self.eos_token_id, self.pad_token_id = ids

    def __call__(
        self,
        text: str | Sequence[str] | None = None,
        *,
        text_target: str | Sequence[str] | None = None,
        add_special_tokens: bool = True,
        padding: bool = False,
        return_tensors: str | None = None,
    ) -> Any:
        """Returns `input_ids` of a text or of several, of the source or of the target; and, if they are padded or
        tensors, `attention_mask`."""
        words = (text if text_target is None else text_target) or ""
        rows = [self._encode(each, add_special_tokens) for each in ([words] if isinstance(words, str) else words)]
        if not (padding or return_tensors):
            return Encoding(input_ids=rows[0] if isinstance(words, str) else rows)
        from transformers import BatchEncoding

        longest = max(map(len, rows)) if padding else 0
        padded = [[*row, *[self.pad_token_id] * (longest - len(row))] for row in rows]
        mask = [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        return BatchEncoding({"input_ids": padded, "attention_mask": mask}, tensor_type=return_tensors)

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return self._tokenizer.decode(list(map(int, ids)), skip_special_tokens=skip_special_tokens)

    def batch_decode(self, rows: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        ids = [list(map(int, row)) for row in rows]
        return self._tokenizer.decode_batch(ids, skip_special_tokens=skip_special_tokens)

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

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
        """Writes the two files."""
        Path(folder).mkdir(exist_ok=True)
        (Path(folder) / "tokenizer.json").write_text(self._content, encoding="utf-8")
        write_json(Path(folder) / SETTINGS, self.init_kwargs)


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
