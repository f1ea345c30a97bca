"""Show how a mask-predict model writes a translation: what each iteration masks, and what it fills in.

    vanilla iterations --model runs/multi30k_en_de_mask_predict/model --text "A man rides a bike." --iterations 4
    vanilla iterations --model MODEL --text "A man rides a bike." --output_dir runs/iterations

The command prints a table. Each line is an iteration. Tokens that it predicted are in brackets, the others are from
earlier iterations. With --output_dir it also writes iterations.html, a page with a frame before and after each
iteration, for any browser, also offline.
"""

from dataclasses import dataclass, fields
from pathlib import Path

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.models.mask_predict_options import MaskPredictOptions
from vanilla_transformer.models.searches import require_values
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_text
from vanilla_transformer.serving.standalone_page import standalone_html
from vanilla_transformer.training.reports.mask_predict_iterations import Iterations, iterations_of, readable


PAGE = "iterations.html"


@dataclass
class ShowArguments:
    """What to translate, and where to write the page."""

    model: str = key("runs/demo_mask_predict/model", "Folder of a mask_predict model, or its name on the Hub.")
    text: str = key("A man rides a bike.", "The text to translate.")
    iterations: int | None = key(None, "Passes of the decoder; by default the model's, else 10.")
    length_candidates: int | None = key(None, "Lengths tried; by default the model's, else 5. The best one is shown.")
    length_ratio: float | None = key(None, "Factor on the predicted length; default 1.")
    length_alpha: float | None = key(None, "Lengths are ranked by log-probability / length^length_alpha; default 1.")
    output_dir: str | None = key(None, "Folder for the page; without it, there is only the table.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")

    def __post_init__(self) -> None:
        require_values(**vars(self))


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ShowArguments], __doc__, argv)
        show(options)


def show(options: ShowArguments) -> None:
    """Prints the table and, if asked, writes the page."""
    names = (option.name for option in fields(MaskPredictOptions))
    given = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    iterations = iterations_of(Translator.from_pretrained(options.model, backend="torch"), options.text, **given)
    print(readable(iterations))
    if options.output_dir:
        with whole_folder(options.output_dir, made_of=(PAGE,), overwrite=options.overwrite) as folder:
            write_text(folder / PAGE, render_page(iterations))
        print(Path(options.output_dir) / PAGE)


def render_page(iterations: Iterations) -> str:
    """A page in one file with a frame for each half of an iteration: what is masked, and what is filled in."""
    frames = [
        {"tokens": frame.tokens, "masked": frame.masked, "probabilities": [round(p, 4) for p in frame.probabilities]}
        for frame in iterations.frames
    ]
    return standalone_html(f"{iterations.source} → {iterations.translation}", "drawIterations", {"frames": frames})


if __name__ == "__main__":
    main()
