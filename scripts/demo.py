"""Train a small translator from English into German and try it, in three to five minutes.

    vanilla demo

The demo trains with the recipe `demo`, as `vanilla train demo` does, on everyday sentences that come with the package.
Then it translates sentences that are not in the training text, draws an attention map and, on a terminal, asks for
sentences of yours. All files are in runs/demo. If the demo is interrupted, run it again: it resumes from the last
checkpoint. A finished demo is not trained again.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.safe_files.standard_streams import on_terminal
from vanilla_transformer.training import train
from vanilla_transformer.training.evaluation.results import RESULTS, read_results
from vanilla_transformer.training.reports.plots import plot_attention


SENTENCES = [
    "She has two children and a dog.",
    "The weather is nice today.",
    "My brother lives in a small town.",
    "Do you know where he works?",
    "The old man is reading a newspaper.",
]


DEFAULT_FOLDER = Path("runs/demo")


@dataclass
class DemoArguments:
    """Where to write the demo."""

    output_dir: str = key(str(DEFAULT_FOLDER), "Folder of the run.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([DemoArguments], __doc__, argv)
        folder = Path(options.output_dir)
        if train_or_resume(folder):
            translator = Translator.from_pretrained(folder / "model", backend="torch")
            show_translations(translator, folder)
            show_files(folder)
            invite(translator, folder)


def train_or_resume(folder: Path) -> bool:
    """Trains unless the run is finished. Returns whether there is a finished model."""
    if not (folder / RESULTS).is_file():
        words = ["demo", "--output_dir", str(folder), "--resume_from_checkpoint", "auto"]
        recipe = train.parse_recipe(train.__doc__, words)
        if train.train(*recipe) is None:
            print(f"To resume: run vanilla demo again{'' if folder == DEFAULT_FOLDER else f' --output_dir {folder}'}")
    return (folder / RESULTS).is_file()


def show_translations(translator: Translator, folder: Path) -> None:
    """Prints translations of new sentences, and draws the attention of the first."""
    translations = [best for (best,) in translator.translate(SENTENCES, attention=True)]
    print("\nSentences that are not in the training text:")
    for source, translation in zip(SENTENCES, translations, strict=True):
        print(f"  {source}\n    {translation.text}")

    first = translations[0]
    assert first.attention is not None  # attention=True
    plot_attention(
        first.attention[-1].mean(0),
        first.source_tokens,
        first.tokens,
        folder / "attention.png",
        f"{SENTENCES[0]} → {first.text} (attention to the source in the last layer, mean of heads)",
    )


def show_files(folder: Path) -> None:
    """Prints BLEU on the test set, and where the files are."""
    bleu = read_results(folder)["test"]["sacrebleu"]
    print(f"\nBLEU on the test set: {bleu['score']:.1f} ({bleu['signature']})")
    print(f"model            {folder / 'model'}   (AutoModelForSeq2SeqLM.from_pretrained)")
    print(f"learning curve   {folder / 'learning_curve.png'}")
    print(f"attention        {folder / 'attention.png'}")
    print(f"test output      {folder / 'test.hypotheses.txt'}")


def invite(translator: Translator, folder: Path) -> None:
    """Translates the reader's sentences until an empty line; without a terminal, prints the command that does it."""
    if not (on_terminal(sys.stdin) and on_terminal(sys.stdout)):
        print(f'your sentences   vanilla translate "Where is my key?" --model {folder / "model"}')
        return
    print("\nNow yours, in English. An empty line ends the demo.")
    while source := read_line():
        print(f"  {translator(source)}")


def read_line() -> str:
    """Returns a line of the terminal without spaces around it; an empty one at its end (Ctrl-D)."""
    try:
        return input("> ").strip()
    except EOFError:
        return ""


if __name__ == "__main__":
    main()
