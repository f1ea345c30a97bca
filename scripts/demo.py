"""Train a small English-German translator on the built-in corpus and show what it learned, in three to five minutes.

    vanilla demo

The demo trains with the recipe `demo`, as `vanilla train demo` does. Then it translates sentences that are not in
the training text and draws an attention map. All files are in runs/demo. If the demo is interrupted, run it again: it
resumes from the last checkpoint.
"""

from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.training import train
from vanilla_transformer.training.data.demo_corpus.grammar import demo_corpus
from vanilla_transformer.training.evaluation.results import RESULTS, read_results
from vanilla_transformer.training.reports.plots import plot_attention


SENTENCES = [
    "Yesterday the young teacher bought twenty-one red apples.",
    "Although the children are tired, they want to read an interesting book.",
    "When does the train arrive in Berlin?",
    "The woman who the doctor visited opens the window at half past seven.",
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
            show_translations(folder)
            show_files(folder)


def train_or_resume(folder: Path) -> bool:
    """Trains unless the run is finished. Returns whether there is a finished model."""
    if not (folder / RESULTS).is_file():
        words = ["demo", "--output_dir", str(folder), "--resume_from_checkpoint", "auto"]
        recipe = train.parse_recipe(train.__doc__, words)
        if train.train(*recipe) is None:
            print(f"To resume: run vanilla demo again{'' if folder == DEFAULT_FOLDER else f' --output_dir {folder}'}")
    return (folder / RESULTS).is_file()


def show_translations(folder: Path) -> None:
    """Prints translations of new sentences, and draws the attention of the first."""
    training_sentences = {pair["en"] for pair in demo_corpus("train")}
    sources = [sentence for sentence in SENTENCES if sentence not in training_sentences]
    translator = Translator.from_pretrained(folder / "model", backend="torch")
    translations = [best for (best,) in translator.translate(sources, attention=True)]
    print("\nSentences that are not in the training text:")
    for source, translation in zip(sources, translations, strict=True):
        print(f"  {source}\n    {translation.text}")

    first = translations[0]
    assert first.attention is not None  # attention=True
    plot_attention(
        first.attention[-1].mean(0),
        first.source_tokens,
        first.tokens,
        folder / "attention.png",
        f"{sources[0]} → {first.text} (attention to the source in the last layer, mean of heads)",
    )


def show_files(folder: Path) -> None:
    """Prints BLEU on the test set, and where the files are."""
    bleu = read_results(folder)["test"]["sacrebleu"]
    print(f"\nBLEU on the test set: {bleu['score']:.1f} ({bleu['signature']})")
    print(f"model            {folder / 'model'}   (AutoModelForSeq2SeqLM.from_pretrained)")
    print(f"learning curve   {folder / 'learning_curve.png'}")
    print(f"attention        {folder / 'attention.png'}")
    print(f"test output      {folder / 'test.hypotheses.txt'}")


if __name__ == "__main__":
    main()
