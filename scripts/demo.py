"""Train a small English-German translator on the built-in corpus and show what it learned, in three to five minutes.

    vanilla-demo

Runs training/recipes/demo.yaml through the same code as any other recipe, then translates sentences that the model has
never seen and draws what it attends to. Everything is left in runs/demo. A demo that was stopped goes on where it was.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.training.arguments import errors_as_sentences, key, parse_arguments


SENTENCES = [
    "Yesterday the young teacher bought twenty-one red apples.",
    "Although the children are tired, they want to read an interesting book.",
    "When does the train arrive in Berlin?",
    "The woman who the doctor visited opens the window at half past seven.",
]


@dataclass
class DemoArguments:
    """Where to put the demo."""

    output_dir: str = key("runs/demo", "Folder of the run.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([DemoArguments], __doc__, argv)
        folder = Path(options.output_dir)
        if train_or_go_on(folder):
            show(folder)


def train_or_go_on(folder: Path) -> bool:
    """Trains unless that is done already. Returns whether there is a finished model."""
    from vanilla_transformer.training import train
    from vanilla_transformer.training.averaging import checkpoints

    if not (folder / "results.json").is_file():
        recipe = Path(train.__file__).parent / "recipes" / "demo.yaml"
        resume = ["--resume_from_checkpoint", "last"] if folder.is_dir() and checkpoints(folder) else []
        train.main([str(recipe), "--output_dir", str(folder), *resume])
    return (folder / "results.json").is_file()


def show(folder: Path) -> None:
    """Translations, an attention picture, and where everything is."""
    from vanilla_transformer import Translator
    from vanilla_transformer.training.demo.grammar import demo_corpus
    from vanilla_transformer.training.plots import plot_attention

    seen = {pair["en"] for pair in demo_corpus("train")}
    new = [sentence for sentence in SENTENCES if sentence not in seen]
    translator = Translator.from_pretrained(folder / "model")
    found = [best for (best,) in translator.translate(new, attention=True)]
    print("\nSentences that were not in the training text:")
    for source, translation in zip(new, found, strict=True):
        print(f"  {source}\n    {translation.text}")

    first = found[0]
    plot_attention(
        first.attention[-1].mean(0),
        first.source_tokens,
        first.tokens,
        folder / "attention.png",
        "attention to the source (mean of heads)",
    )
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    print(f"\nBLEU on {folder}'s test set: {results['test']['bleu']:.1f} ({results['test']['signature']})")
    print(f"model            {folder / 'model'}   (AutoModelForSeq2SeqLM.from_pretrained)")
    print(f"learning curve   {folder / 'learning_curve.png'}")
    print(f"attention        {folder / 'attention.png'}")
    print(f"test output      {folder / 'test.hypotheses.txt'}")


if __name__ == "__main__":
    main()
