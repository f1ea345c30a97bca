"""Convert a model to the format of CTranslate2, a C++ engine for translation.

    vanilla convert ctranslate2 --model runs/demo/model --output_dir runs/demo/ctranslate2 --quantization int8

The folder is a model: it needs neither torch nor the original, and nothing is compared or made again.

    vanilla translate --model runs/demo/ctranslate2 "When does the train arrive in Berlin?"

To translate without this package:

    import ctranslate2
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained("runs/demo/ctranslate2")
    translator = ctranslate2.Translator("runs/demo/ctranslate2")
    tokens = tokenizer.tokenize("When does the train arrive in Berlin?")
    tokens.append(tokenizer.eos_token)
    best = translator.translate_batch([tokens], beam_size=4, length_penalty=0.6)[0].hypotheses[0]
    print(tokenizer.decode(tokenizer.convert_tokens_to_ids(best)))
"""

from dataclasses import dataclass

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.converters.converted_folder import convert
from vanilla_transformer.converters.to_ctranslate2 import Quantization, require_ctranslate2
from vanilla_transformer.safe_files.atomic_writes import whole_folder


@dataclass
class ExportArguments:
    """Which model to convert, to which type, and where to write it."""

    model: str = key("runs/demo/model", "Folder of the model, or its name on the Hub.")
    output_dir: str = key("ctranslate2", "Folder for the converted model.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")
    quantization: Quantization = key(
        "float32", "Type of the weights. In int8_float16, matrices are in 8 bits and all other weights in float16."
    )
    max_positions: int | None = key(
        None, "Longest source or translation with sinusoidal positions; default: the model's max_position_embeddings."
    )
    revision: str = key("main", "Branch, tag or commit of a model on the Hub.")

    def __post_init__(self) -> None:
        if self.max_positions is not None and self.max_positions < 1:
            raise ValueError(f"--max_positions {self.max_positions} must be at least 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ExportArguments], __doc__, argv)
        export_model(options)
        print(f"{options.model} in {options.quantization} in {options.output_dir}")


def export_model(options: ExportArguments) -> None:
    """Writes the converted folder."""
    require_ctranslate2()
    with whole_folder(options.output_dir, known_by="model.bin", overwrite=options.overwrite) as folder:
        convert(
            options.model,
            folder,
            quantization=options.quantization,
            max_positions=options.max_positions,
            revision=options.revision,
        )


if __name__ == "__main__":
    main()
