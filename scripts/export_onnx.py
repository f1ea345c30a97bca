"""Export a model to ONNX graphs, which ONNX Runtime and other engines run.

    vanilla convert onnx --model runs/demo/model --output_dir runs/demo/onnx
    vanilla convert onnx --model runs/demo/model --output_dir runs/demo/onnx-int8 --quantization int8

The folder holds three graphs (encoder, keys and values of the source, decoder with cache), config, decoding settings
and tokenizers. The search is not part of the graphs: docs/decoding.md has a greedy one for ONNX Runtime. The command
needs the extra onnx: pip install 'vanilla-transformer[onnx]'. The export of a small model takes half a minute.
"""

from dataclasses import dataclass

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.converters.from_and_to_marian import load
from vanilla_transformer.converters.to_onnx import GRAPHS, Quantization, export, require_onnx
from vanilla_transformer.hub.loading import load_tokenizers
from vanilla_transformer.models.tokenization_vanilla_transformer import TARGET
from vanilla_transformer.safe_files.atomic_writes import whole_folder


@dataclass
class ExportArguments:
    """Which model to export, with which weights, and where to write it."""

    model: str = key("runs/demo/model", "Folder of the model, or its name on the Hub.")
    output_dir: str = key("onnx", "Folder for the graphs.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")
    quantization: Quantization = key("float32", "Type of the weights of linear layers.")
    revision: str = key("main", "Branch, tag or commit of a model on the Hub.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ExportArguments], __doc__, argv)
        export_model(options)
        print(f"{options.model} in {options.quantization} in {options.output_dir}")


def export_model(options: ExportArguments) -> None:
    """Writes the graphs and the tokenizers."""
    require_onnx("onnx", "onnxscript", "onnxruntime")
    with whole_folder(options.output_dir, known_by=f"{GRAPHS[-1]}.onnx", overwrite=options.overwrite) as folder:
        model = load(options.model, "vanilla_transformer", revision=options.revision).float()
        tokenizer, target_tokenizer = load_tokenizers(options.model, revision=options.revision)
        export(model, folder, quantization=options.quantization)
        tokenizer.save_pretrained(folder)
        if target_tokenizer is not None:
            target_tokenizer.save_pretrained(folder / TARGET)


if __name__ == "__main__":
    main()
