"""Draw the attention of a translator, its positional encodings, and the paper's learning rate.

All heads of all layers, for a text and its translation by the model:

    vanilla attention --model runs/demo/model --text "Do you know where he works?"

The same for a translation that you give, in another folder:

    vanilla attention --model runs/demo/model --text "The cat sleeps." --translation "Die Katze schläft." \\
        --output_dir runs/cat

Textbook figures, which need no model:

    vanilla attention --positions --preset base --learning_rate --output_dir runs/figures

With --text the output folder holds three pictures (encoder self-attention, decoder self-attention, cross attention)
and attention.html, a page that shows them by word and by head in any browser, also offline. Each row shows where one
token attends: a source token in the encoder, the token being written in the decoder. A recurrent model (rnn_search)
has cross attention only.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from vanilla_transformer import Translator, VanillaTransformerConfig
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.positions import AddedPositions
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_text
from vanilla_transformer.serving.standalone_page import standalone_html
from vanilla_transformer.training.reports.plots import (
    plot_attention_heads,
    plot_learning_rates,
    plot_positions,
    require_matplotlib,
)
from vanilla_transformer.translation.attention_maps import MAX_TOKENS, attention_data, maps_of


PICTURES = (
    *("encoder_self_attention.png", "decoder_self_attention.png", "cross_attention.png", "attention.html"),
    *("positions.png", "learning_rate.png"),
)


@dataclass
class PlotArguments:
    """What to draw, and where to write it."""

    model: str | None = key(None, "Folder of the model, or its name on the Hub: this one, MarianMT, T5 ...")
    text: str | None = key(None, "Source text whose attention is drawn.")
    translation: str | None = key(None, "Translation of the text; default: the model's, by beam search.")

    positions: bool = key(False, "Draw the positional encodings that the model adds to its embeddings.")
    preset: str | None = key(None, "With --positions, without --model: a model of the paper by name; default: base.")
    length: int = key(100, "With --positions: number of positions.")

    learning_rate: bool = key(False, "Draw the paper's learning rate over the steps.")
    curves: list[str] = key(
        ["512:4000", "512:8000", "256:4000"], "With --learning_rate: d_model:warm-up steps of each curve."
    )
    steps: int = key(20000, "With --learning_rate: number of steps.")

    output_dir: str = key("runs/attention", "Folder for the pictures.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")

    def __post_init__(self) -> None:
        if self.text is None and not self.positions and not self.learning_rate:
            raise ValueError("Nothing to draw: give --model and --text, or --positions, or --learning_rate.")
        for name in ("model", "preset"):
            if getattr(self, name) is not None and self.text is None and not self.positions:
                raise ValueError(
                    f"--{name} {getattr(self, name)} has no effect without --text or --positions: add one of them."
                )
        for name in ("text", "translation"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise ValueError(f"--{name} {value!r} is empty: give a sentence.")
        if self.translation is not None and self.text is None:
            raise ValueError(f"--translation {self.translation!r}: give its source with --text.")
        if self.text is not None and self.model is None:
            raise ValueError(f"--text {self.text!r}: give the model that reads it with --model.")
        if self.model is not None and self.preset is not None:
            raise ValueError(f"Both --model {self.model} and --preset {self.preset} are given: keep one of them.")
        for name in ("length", "steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} {getattr(self, name)} must be at least 1.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([PlotArguments], __doc__, argv)
        for path in draw(options):
            print(path)


def draw(options: PlotArguments) -> list[Path]:
    """Draws the pictures; returns their files."""
    require_matplotlib()
    curves = [parse_curve(curve) for curve in options.curves]
    with whole_folder(options.output_dir, made_of=PICTURES, overwrite=options.overwrite) as folder:
        translator = Translator.from_pretrained(options.model, backend="torch") if options.model else None
        if options.text is not None and translator is not None:
            draw_attention(translator, options.text, options.translation, folder)
        if options.positions:
            vectors = model_positions(translator.model, options.length) if translator else preset_positions(options)
            owner = options.model or f"the {options.preset or 'base'} model"
            plot_positions(vectors, folder / "positions.png", f"positional encodings of {owner}")
        if options.learning_rate:
            plot_learning_rates(curves, options.steps, folder / "learning_rate.png")
        names = sorted(path.name for path in folder.iterdir())
    return [Path(options.output_dir) / name for name in names]


def parse_curve(curve: str) -> tuple[int, int]:
    """The two numbers of, for example, 512:4000."""
    numbers = curve.split(":")
    if len(numbers) != 2 or not all(number.isdecimal() and int(number) for number in numbers):
        raise ValueError(f"--curves {curve!r} must be d_model:warm-up steps, for example 512:4000.")
    d_model, warmup = map(int, numbers)
    return d_model, warmup


# --- attention ---


def draw_attention(translator: Translator, text: str, translation: str | None, folder: Path) -> None:
    """One picture for each kind of attention, and one page with all of them."""
    _require_few("--text", len(translator.tokenizer(text)["input_ids"]))
    if translation is None:
        hypothesis = next(translator.translate([text], attention=True))[0]
    else:
        hypothesis = translator.attend(text, translation)
    _require_few("The translation", len(hypothesis.tokens))
    title = f"{text} → {hypothesis.text}"
    for maps in maps_of(hypothesis):
        plot_attention_heads(maps, folder / f"{maps.kind.replace(' ', '_').replace('-', '_')}.png", title)
    write_text(folder / "attention.html", standalone_html(title, "drawAttention", attention_data(text, hypothesis)))


def _require_few(what: str, tokens: int) -> None:
    if tokens > MAX_TOKENS:
        raise ValueError(f"{what} has {tokens} tokens, too many for a picture: give at most {MAX_TOKENS}.")


# --- positions ---


def model_positions(model: PreTrainedModel, length: int) -> torch.Tensor:
    """The first encodings [positions, dimensions] of a model's encoder, computed or learned."""
    encoding = getattr(model.get_encoder(), "embed_positions", None)
    if isinstance(encoding, AddedPositions):
        _require_positions(length, encoding.max_length)
        vectors = encoding(torch.arange(length, device=model.device))
    elif isinstance(encoding, nn.Embedding):  # another model of the library
        table = encoding.weight[getattr(encoding, "offset", 0) :]  # BART starts at its third row
        _require_positions(length, len(table))
        vectors = table[:length]
    else:
        raise ValueError(f"{type(model).__name__} adds no positional encodings to embeddings: leave out --positions.")
    return vectors.detach().cpu().to(torch.promote_types(vectors.dtype, torch.float32))


def preset_positions(options: PlotArguments) -> torch.Tensor:
    """The encodings of a model of the paper, if they are computed and not learned."""
    config = VanillaTransformerConfig.from_preset(options.preset or "base")
    encoding = config.variant("position_encoding")(config)
    if not isinstance(encoding, AddedPositions) or list(encoding.parameters()):
        raise ValueError(
            f"--preset {options.preset} has learned positions, which need training: give a trained model with --model."
        )
    return encoding(torch.arange(options.length))


def _require_positions(length: int, limit: int | None) -> None:
    if limit is not None and length > limit:
        raise ValueError(f"--length {length}: the model has {limit} positions, give at most that.")


if __name__ == "__main__":
    main()
