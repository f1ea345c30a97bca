"""Recipe keys of the model."""

import json
from dataclasses import dataclass, make_dataclass
from typing import Any, ClassVar

from vanilla_transformer.command_line.parsing import key, search_fields
from vanilla_transformer.models.searches import all_options, require_values


_StoredOptions: Any = make_dataclass(
    "_StoredOptions",
    search_fields(" Stored in the finished model's generation config; by default unchanged, else {default}."),
    namespace={"__module__": __name__},
)


@dataclass
class ModelArguments(_StoredOptions):
    """Which model is trained, and its tokenizer."""

    help_group: ClassVar[str] = "model"

    model_type: str = key(
        "vanilla_transformer",
        "Architecture of a new model: vanilla_transformer, rnn_search (the recurrent model before it), mask_predict "
        "(writes all tokens at once), or any "
        "encoder-decoder of transformers such as marian or t5.",
    )
    preset: str = key(
        "base",
        "A vanilla_transformer of the paper by name: base, big, a row of Table 3 such as C-N4, or tiny.",
    )
    model_config: dict | str | None = key(
        None, 'Config fields of the model, set on top of the preset, for example {"dropout": 0.3}.'
    )
    model_name_or_path: str | None = key(None, "A trained model to continue from, instead of a new one.")
    initialize_from: str | None = key(
        None,
        "A trained vanilla_transformer whose weights and vocabulary a new model of another type starts from; for "
        "example a mask_predict model from its teacher.",
    )
    tokenizer: str | None = key(
        None, "An existing tokenizer (folder or Hub); by default one is learned from the training text."
    )

    lora_rank: int | None = key(
        None,
        "Train a LoRA adapter of this rank (PEFT) in place of the weights of model_name_or_path; 16 is usual. The "
        "final model has it merged into its weights.",
    )

    def __post_init__(self) -> None:
        if isinstance(self.model_config, str):
            try:
                self.model_config = json.loads(self.model_config)
            except json.JSONDecodeError as error:
                raise ValueError(f"model_config={self.model_config!r} is not valid JSON ({error}).") from error
        if not isinstance(self.model_config, dict | None):
            raise ValueError(
                f'model_config={self.model_config!r} must map fields to values, for example {{"dropout": 0.3}}.'
            )
        require_values(**self.decoding)
        if self.initialize_from and self.model_name_or_path:
            raise ValueError(
                f"initialize_from={self.initialize_from!r} is for a new model, but model_name_or_path="
                f"{self.model_name_or_path!r} continues a trained one: give one of them."
            )

        if self.lora_rank is not None and (self.lora_rank < 1 or not self.model_name_or_path):
            raise ValueError(
                f"lora_rank={self.lora_rank} must be 1 or more, and adapts a trained model: give model_name_or_path, "
                "or leave lora_rank out."
            )

    @property
    def decoding(self) -> dict[str, Any]:
        """The decoding options that are given."""
        return {name: value for name in all_options() if (value := getattr(self, name)) is not None}

    @property
    def config_fields(self) -> dict[str, Any]:
        """The fields in `model_config`."""
        return self.model_config if isinstance(self.model_config, dict) else {}
