"""Convert a MarianMT checkpoint to a model of this package, or the reverse.

Any OPUS-MT model of the Hub or a local folder. The result can be fine-tuned like a model trained here:

    vanilla convert marian --model Helsinki-NLP/opus-mt-en-de --output_dir models/en-de
    vanilla train recipe.yaml --model_name_or_path models/en-de

And back, for programs that read MarianMT:

    vanilla convert marian --model models/en-de --to marian --output_dir models/en-de-marian

Weights keep their type unless --dtype names another. Tokenizer files are copied unchanged, and the generation settings
are kept. The last line of the output gives the largest difference between the logits of the two models.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers.utils import cached_file

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.converters.from_and_to_marian import from_marian, largest_difference, load, to_marian
from vanilla_transformer.hub.languages import load_languages, record_languages
from vanilla_transformer.hub.loading import find_model
from vanilla_transformer.safe_files.atomic_writes import whole_folder


TOKENIZER_FILES = (
    *("source.spm", "target.spm", "vocab.json", "target_vocab.json"),  # MarianTokenizer's
    *("tokenizer.json", "target/tokenizer.json"),  # this package's
    *("tokenizer_config.json", "target/tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
)


@dataclass
class ConvertArguments:
    """Which model to convert, in which direction, and where to write the result."""

    model: str = key("Helsinki-NLP/opus-mt-en-de", "Folder of the model, or its name on the Hub.")
    to: Literal["vanilla", "marian"] = key("vanilla", "Convert to this package's model, or to MarianMT.")
    output_dir: str = key("converted", "Folder for the converted model, as `from_pretrained` reads it.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")
    dtype: Literal["same", "float32", "float16", "bfloat16"] = key("same", "Type of the converted weights.")
    revision: str = key("main", "Branch, tag or commit of a model on the Hub.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ConvertArguments], __doc__, argv)
        difference = convert(options)
        print(f"{options.model} in {options.output_dir}: logits differ by at most {difference:.1e}")


def convert(options: ConvertArguments) -> float:
    """Writes the converted model and its tokenizer; returns the largest difference between the two models' logits."""
    to_vanilla, source = options.to == "vanilla", str(find_model(options.model))
    with whole_folder(options.output_dir, known_by="config.json", overwrite=options.overwrite) as folder:
        model = load(source, "marian" if to_vanilla else "vanilla_transformer", revision=options.revision)
        converted = from_marian(model) if to_vanilla else to_marian(model)
        record_languages(converted.config, load_languages(source, revision=options.revision))
        difference = largest_difference(model, converted)
        if options.dtype != "same":
            converted.to(getattr(torch, options.dtype))
        copy_tokenizer(source, folder, revision=options.revision)
        if (folder / "source.spm").is_file():
            # OPUS-MT's tokenizer files do not name their class. AutoTokenizer finds it by the model type, which has
            # changed.
            converted.config.tokenizer_class = "MarianTokenizer"
        converted.save_pretrained(folder)
    return difference


def copy_tokenizer(name_or_path: str, folder: Path, **options: Any) -> None:
    """Copies the tokenizer files of a model, byte for byte."""
    for name in TOKENIZER_FILES:
        path = cached_file(name_or_path, name, _raise_exceptions_for_missing_entries=False, **options)
        if path is not None:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(path, folder / name)


if __name__ == "__main__":
    main()
