"""Draw what a translator attends to, its positional encodings and the paper's learning rate.

Every head of every layer, for a text and its translation by the model:

    vanilla-plot-attention --model runs/demo/model --text "When does the train arrive in Berlin?"

The same for a translation of your own, in another folder:

    vanilla-plot-attention --model runs/demo/model --text "The cat sleeps." --translation "Die Katze schläft." \\
        --output_dir runs/cat

The figures of a textbook, for which no model is needed:

    vanilla-plot-attention --positions --preset base --learning_rate --output_dir runs/figures

With --text the folder holds a picture of encoder self-attention, decoder self-attention and cross attention each, and
attention.html, a page to look through them head by head in any browser, also without a network. Row by row they show
what was looked at: by a source token in the encoder, for the token being written in the decoder.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vanilla_transformer.training.arguments import errors_as_sentences, key, parse_arguments


if TYPE_CHECKING:  # imported where they are needed: --help needs none of them
    import torch

    from vanilla_transformer import Hypothesis, Translator
    from vanilla_transformer.training.plots import AttentionMaps


PICTURES = (
    *("encoder_self_attention.png", "decoder_self_attention.png", "cross_attention.png", "attention.html"),
    *("positions.png", "learning_rate.png"),
)
MOST_TOKENS = 128  # more than that make neither a picture that can be read nor a page that opens quickly


@dataclass
class PlotArguments:
    """What to draw, and where to put it."""

    model: str | None = key(None, "Folder or name on the Hub of the model: this one, MarianMT, T5 ...")
    text: str | None = key(None, "Draw the attention of the model to this text and within it.")
    translation: str | None = key(None, "The text's translation; by default the model's own, found by beam search.")

    positions: bool = key(False, "Draw the positional encodings that the model adds to its embeddings.")
    preset: str | None = key(None, "With --positions and no --model: a model of the paper by name; base by default.")
    length: int = key(100, "With --positions: how many positions.")

    learning_rate: bool = key(False, "Draw the paper's learning rate over the steps.")
    curves: list[str] = key(
        ["512:4000", "512:8000", "256:4000"], "With --learning_rate: d_model:warm-up steps of each curve."
    )
    steps: int = key(20000, "With --learning_rate: how many steps.")

    output_dir: str = key("runs/attention", "Folder for the pictures.")
    overwrite: bool = key(False, "Replace what is already there.")

    def __post_init__(self):
        if self.text is None and not self.positions and not self.learning_rate:
            raise ValueError("Nothing to draw: give --model and --text, or --positions, or --learning_rate.")
        for name in ("model", "preset"):
            if getattr(self, name) is not None and self.text is None and not self.positions:
                raise ValueError(
                    f"--{name} {getattr(self, name)}: nothing of it is drawn without --text or --positions."
                )
        for name in ("text", "translation"):
            value = getattr(self, name)
            if value is not None and not value.strip():
                raise ValueError(f"--{name} {value!r} is empty: give a sentence.")
        if self.translation is not None and self.text is None:
            raise ValueError(f"--translation {self.translation!r}: give with --text what it is the translation of.")
        if self.text is not None and self.model is None:
            raise ValueError(f"--text {self.text!r}: give with --model who is to read it.")
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
    """Draws what is asked for; returns the files."""
    from vanilla_transformer import Translator
    from vanilla_transformer.atomic_writes import whole_folder
    from vanilla_transformer.training.plots import plot_learning_rates, plot_positions, require_matplotlib

    require_matplotlib()
    curves = [parse_curve(curve) for curve in options.curves]
    with whole_folder(options.output_dir, made_of=PICTURES, overwrite=options.overwrite) as folder:
        translator = Translator.from_pretrained(options.model) if options.model else None
        if options.text is not None:
            draw_attention(translator, options, folder)
        if options.positions:
            vectors = model_positions(translator.model, options.length) if translator else preset_positions(options)
            whose = options.model or f"the {options.preset or 'base'} model"
            plot_positions(vectors, folder / "positions.png", f"positional encodings of {whose}")
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


def draw_attention(translator: "Translator", options: PlotArguments, folder: Path) -> None:
    """A picture of each kind of attention, and one page of them all."""
    from vanilla_transformer.training.plots import attention_page, plot_attention_heads

    _require_few("--text", len(translator.tokenizer(options.text)["input_ids"]))
    if options.translation is None:
        hypothesis = next(translator.translate([options.text], attention=True))[0]
    else:
        hypothesis = translator.attend(options.text, options.translation)
    _require_few("The translation", len(hypothesis.tokens))
    kinds = attention_maps(hypothesis)
    for maps in kinds:
        plot_attention_heads(maps, folder / f"{maps.kind.replace(' ', '_').replace('-', '_')}.png")
    page = attention_page(kinds, title=f"{options.text} → {hypothesis.text}")
    (folder / "attention.html").write_text(page, encoding="utf-8")


def attention_maps(hypothesis: "Hypothesis") -> list["AttentionMaps"]:
    from vanilla_transformer.training.plots import AttentionMaps

    source, written, read = hypothesis.source_tokens, hypothesis.tokens, hypothesis.read_tokens
    looks, writes = "source token that looks", "token being written"
    seen, known = "source token looked at", "token the decoder has read"
    return [
        AttentionMaps("encoder self-attention", hypothesis.encoder_attention, source, source, looks, seen),
        AttentionMaps("decoder self-attention", hypothesis.decoder_attention, written, read, writes, known),
        AttentionMaps("cross attention", hypothesis.attention, written, source, writes, seen),
    ]


def _require_few(what: str, tokens: int) -> None:
    if tokens > MOST_TOKENS:
        raise ValueError(f"{what} has {tokens} tokens, too many for a picture: give at most {MOST_TOKENS}.")


# --- positions ---


def model_positions(model, length: int) -> "torch.Tensor":
    """The first encodings [positions, dimensions] of a model's encoder, computed or learned."""
    import torch
    from torch import nn

    from vanilla_transformer.positions import SinusoidalPositions

    positions = getattr(model.get_encoder(), "embed_positions", None)
    if isinstance(positions, SinusoidalPositions):
        return positions(torch.arange(length, device=model.device)).cpu()
    if not isinstance(positions, nn.Embedding):
        raise ValueError(f"{type(model).__name__} has no positional encodings to draw: leave out --positions.")
    table = positions.weight.detach().float().cpu()[getattr(positions, "offset", 0) :]  # BART begins at the third row
    if length > len(table):
        raise ValueError(f"--length {length}: the model has {len(table)} positions, give at most that.")
    return table[:length]


def preset_positions(options: PlotArguments) -> "torch.Tensor":
    """The encodings of a model of the paper, which need no training."""
    import torch

    from vanilla_transformer import VanillaTransformerConfig
    from vanilla_transformer.positions import POSITIONS

    config = VanillaTransformerConfig.from_preset(options.preset or "base")
    encoding = POSITIONS[config.position_encoding](config)
    if any(encoding.parameters()):
        raise ValueError(f"--preset {options.preset} learns its positions: give a trained one with --model.")
    return encoding(torch.arange(options.length))


if __name__ == "__main__":
    main()
