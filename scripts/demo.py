"""Train a small English-German translator on the built-in corpus and show what it learned: five minutes on two cores.

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
        if not resume:
            (folder / "run.json").unlink(missing_ok=True)  # a demo that died before its first checkpoint starts again
        train.main([str(recipe), "--output_dir", str(folder), *resume])
    return (folder / "results.json").is_file()


def show(folder: Path) -> None:
    """Translations, an attention picture, and where everything is."""
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    from vanilla_transformer.training.demo_corpus import demo_corpus
    from vanilla_transformer.training.plots import plot_attention

    model = AutoModelForSeq2SeqLM.from_pretrained(folder / "model", attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    seen = {pair["en"] for pair in demo_corpus("train")}
    new = [sentence for sentence in SENTENCES if sentence not in seen]
    batch = tokenizer(new, padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model.generate(**batch, num_beams=4, max_new_tokens=60)
    print("\nSentences that were not in the training text:")
    for source, target in zip(new, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
        print(f"  {source}\n    {target}")

    first = {name: tensor[:1, : int(batch["attention_mask"][0].sum())] for name, tensor in batch.items()}
    ids = output[:1, : int((output[0] != tokenizer.pad_token_id).sum())]
    with torch.no_grad():
        attention = model(**first, decoder_input_ids=ids, output_attentions=True).cross_attentions[-1]
    pieces = [[_readable(tokenizer, piece) for piece in row.tolist()] for row in (first["input_ids"][0], ids[0])]
    # Row t is what was looked at when token t + 1 was written.
    plot_attention(
        attention[0].mean(0)[:-1],
        pieces[0],
        pieces[1][1:],
        folder / "attention.png",
        "attention to the source (mean of heads)",
    )
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    print(f"\nBLEU on {folder}'s test set: {results['test']['bleu']:.1f} ({results['test']['signature']})")
    print(f"model            {folder / 'model'}   (AutoModelForSeq2SeqLM.from_pretrained)")
    print(f"learning curve   {folder / 'learning_curve.png'}")
    print(f"attention        {folder / 'attention.png'}")
    print(f"test output      {folder / 'test.hypotheses.txt'}")


def _readable(tokenizer, piece: int) -> str:
    return tokenizer.decode([piece]).strip() or tokenizer.convert_ids_to_tokens(piece)


if __name__ == "__main__":
    main()
