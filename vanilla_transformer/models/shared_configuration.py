"""What the configs of this package's models share: saving with code, vocabularies, special tokens and checks."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from transformers.dynamic_module_utils import get_relative_import_files

from .spelling import suggestion
from .variants import MODELS, Choice


ENTRY = "entry"  # the module that a saved config with variants names


class SharedConfiguration:
    """Mixin for configs with the fields `vocab_size`, `target_vocab_size`, `share_encoder_decoder_embeddings`,
    `tie_word_embeddings` and the ids of special tokens."""

    # Attributes of the config class.
    model_type: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]
    attribute_map: dict[str, str]
    vocab_size: Any
    target_vocab_size: Any
    share_encoder_decoder_embeddings: Any
    tie_word_embeddings: Any
    decoder_start_token_id: Any
    pad_token_id: Any

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs: Any) -> None:
        """Saves the config with the code of its model, and points at that code in `auto_map`.

        So whatever is saved or pushed, by the library's own `save_pretrained` of a model, its trainer or `export`, can
        be loaded without this package (`trust_remote_code=True`). The config carries the code and not the model: its
        class stays the same where a wrapper such as FSDP 2 changes the model's.
        """
        os.makedirs(save_directory, exist_ok=True)
        self.__dict__.pop("auto_map", None)  # where it was loaded from: this folder may have no such code
        auto_map = MODELS.get(self.model_type, {"AutoConfig": ""})
        if auto_map["AutoConfig"].endswith(f".{type(self).__name__}"):  # not a subclass from elsewhere
            self._auto_class = None  # else the library names the config's file alone
            self.auto_map = self._save_code(Path(save_directory), auto_map)
        super().save_pretrained(save_directory, **kwargs)  # type: ignore[misc]

    def variant_places(self) -> list[Choice]:
        """The entries of `variants` that the config names."""
        return []

    def _save_code(self, folder: Path, auto_map: dict[str, str]) -> dict[str, str]:
        """Copies the files of the model and of its variants, and returns where the folder has each class.

        The library follows imports from one file only, and it must be the same for all classes. So a config with
        variants gets a file that imports everything.
        """
        here = Path(__file__).parent

        def files_of(place: str) -> set[Path]:
            file = here / f"{place.split('.')[0]}.py"
            return {file, *map(Path, get_relative_import_files(file))}

        files = files_of(auto_map["AutoConfig"])
        places = [place for place in self.variant_places() if isinstance(place, str)]
        variants = [place for place in places if not files_of(place) <= files]
        for file in files.union(*map(files_of, variants)):
            shutil.copyfile(file, folder / file.name)
        if not variants:
            return dict(auto_map)
        names: dict[str, list[str]] = {}
        for file_name, name in (place.split(".") for place in (*auto_map.values(), *variants)):
            names.setdefault(file_name, []).append(name)
        imports = [f"from .{file_name} import {', '.join(classes)}\n" for file_name, classes in names.items()]
        (folder / f"{ENTRY}.py").write_text("".join(imports), encoding="utf-8")
        return {auto_class: f"{ENTRY}.{place.split('.')[1]}" for auto_class, place in auto_map.items()}

    @property
    def output_vocab_size(self) -> int:
        """Tokens that the decoder reads and writes."""
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size

    @property
    def shares_embeddings(self) -> bool:
        """Whether source and target embeddings are one matrix where `tie_word_embeddings` allows any tying."""
        return self.target_vocab_size is None and self.share_encoder_decoder_embeddings is not False

    @property
    def start_and_padding(self) -> tuple[int, int]:
        """The tokens with which labels are shifted right."""
        start, pad = self.decoder_start_token_id, self.pad_token_id
        if start is None or pad is None:
            raise ValueError(
                f"Labels can't be shifted right with decoder_start_token_id={start} and pad_token_id={pad}: set both "
                "in the config, or pass decoder_input_ids."
            )
        return start, pad

    def require_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} must be greater than 0.")

    def require_probabilities(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise ValueError(f"{name}={value} must be at least 0 and less than 1: it is a probability.")

    def require_possible_sharing(self) -> None:
        """Refuses `share_encoder_decoder_embeddings=True` beside fields that prevent it."""
        if not self.share_encoder_decoder_embeddings:
            return
        if self.target_vocab_size is not None:
            raise ValueError(
                f"target_vocab_size={self.target_vocab_size} makes a separate target vocabulary, which can't share "
                "embeddings with the source: leave out target_vocab_size or share_encoder_decoder_embeddings=True."
            )
        if not self.tie_word_embeddings:
            raise ValueError(
                "share_encoder_decoder_embeddings=True needs tie_word_embeddings=True: in transformers False unties "
                "every embedding. Set both to True, or leave out share_encoder_decoder_embeddings."
            )

    def require_ids_in_vocabulary(self) -> None:
        size = min(self.vocab_size, self.output_vocab_size)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"):
            value = getattr(self, name)
            for token_id in value if isinstance(value, list) else [value]:
                if token_id is not None and not 0 <= token_id < size:
                    raise ValueError(
                        f"{name}={token_id} is not in the vocabulary, whose ids are 0 to {size - 1}: take the special "
                        "ids from the tokenizer."
                    )

    @classmethod
    def refuse_misspelt(cls, keywords: Mapping[str, Any]) -> None:
        """Refuses keywords that look like a misspelt field.

        The base class keeps any unknown keyword as an attribute, because config files of other versions need that. But
        `encoder_layer=2` would silently build six layers. A longer name, such as `layer_norm_epsilon`, is a field of
        another model and not a spelling mistake.
        """
        field_names = cls.__dataclass_fields__.keys()
        for key, value in keywords.items():
            is_alias = key in cls.attribute_map or any(key.startswith(name) for name in field_names)
            if not is_alias and (hint := suggestion(key, field_names, cutoff=0.85)):
                raise ValueError(f"{key}={value!r} is not a field of {cls.__name__}{hint}.")
