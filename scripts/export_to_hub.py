"""Make a trained run a repository of the Hub: write its folder, check it, push it.

Write and check the folder, with a card whose numbers come from the run and from its evaluations:

    vanilla-export-to-hub --run runs/demo --output_dir runs/demo/hub --license apache-2.0
    vanilla-export-to-hub --run runs/mine --evaluations runs/mine/evaluation --output_dir hub/mine --dtype float16

Publish it, as a private repository unless told otherwise; --dry_run says what would be sent:

    vanilla-export-to-hub --run runs/demo --output_dir runs/demo/hub --push_to user/demo-en-de
    vanilla-export-to-hub --exported runs/demo/hub --push_to user/demo-en-de --revision v2 --create_pr

The check loads the folder in a process that can't import this package, with trust_remote_code=True, and compares what
it translates with what the model translated before.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vanilla_transformer.training.arguments import errors_as_sentences, key, parse_arguments


@dataclass
class ExportArguments:
    """What to export, what to say of it, and where to push it."""

    run: str | None = key(None, "Folder of a finished training run.")
    output_dir: str | None = key(None, "Folder for the repository.")
    overwrite: bool = key(False, "Replace that folder if it is there.")
    exported: str | None = key(None, "A folder written before, to push it as it is, in place of a run.")
    dtype: Literal["float32", "float16", "bfloat16"] = key(
        "float32", "Type of the exported weights; half of float32 if it may cost a translation here and there."
    )

    evaluations: list[str] = key([], "Folders that vanilla-evaluate-bleu wrote, whose figures go into the card.")
    dataset: str | None = key(None, "Name on the Hub of the corpus, where the run had it from files.")
    license: str | None = key(None, "Licence by the Hub's identifier, for example apache-2.0 or other.")
    license_name: str | None = key(None, "Name of the licence where it is other.")
    notes: str | None = key(None, "A Markdown file whose text goes under the card's limitations.")
    example: str = key("When does the train arrive in Berlin?", "Sentence that the card shows with its translation.")

    push_to: str | None = key(None, "Name on the Hub, user/model; without it nothing is pushed.")
    public: bool = key(False, "Make a new repository public.")
    revision: str | None = key(None, "Branch to push to, made if need be; main by default.")
    create_pr: bool = key(False, "Open a pull request in place of a commit on the branch.")
    dry_run: bool = key(False, "Say what would be pushed, and push nothing.")

    def __post_init__(self):
        if bool(self.run) == bool(self.exported):
            raise ValueError("Give either --run, to export it, or --exported, to push what was exported before.")
        if self.run and not self.output_dir:
            raise ValueError("Give --output_dir: where shall the repository's folder be?")
        if self.exported and not self.push_to:
            raise ValueError("Give --push_to: where shall the exported folder go?")
        of_export = ("output_dir", "overwrite", "evaluations", "dataset", "license", "license_name", "notes")
        of_push = ("public", "revision", "create_pr", "dry_run")
        for names, given, needed in ((of_export, self.run, "--run"), (of_push, self.push_to, "--push_to")):
            for name in names:
                if getattr(self, name) and not given:
                    raise ValueError(f"--{name} does nothing without {needed}: leave it out.")
        if self.license_name and self.license != "other":
            raise ValueError(f"--license_name names a licence of its own: set --license other, not {self.license}.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ExportArguments], __doc__, argv)
        folder = Path(options.exported) if options.exported else export_run(options)
        if options.push_to:
            push_folder(folder, options)


def export_run(options: ExportArguments) -> Path:
    """Writes and checks the repository's folder."""
    import torch

    from vanilla_transformer import Translator
    from vanilla_transformer.atomic_writes import whole_folder
    from vanilla_transformer.hub import SENTENCES, check, export
    from vanilla_transformer.training.card import CardOptions, model_card

    run = Path(options.run)
    if not (run / "model" / "config.json").is_file():
        raise ValueError(f"{run} holds no finished run: there is no {run / 'model'}. Train it to the end first.")
    translator = Translator.from_pretrained(run / "model", device="cpu", dtype=getattr(torch, options.dtype))
    with whole_folder(options.output_dir, known_by="config.json", overwrite=options.overwrite) as folder:
        card = model_card(
            run,
            translator.model,
            CardOptions(
                repo_id=options.push_to or Path(options.output_dir).name,
                license=options.license,
                license_name=options.license_name,
                notes=Path(options.notes).read_text(encoding="utf-8") if options.notes else None,
                evaluations=options.evaluations,
                dataset=options.dataset,
                example=(options.example, translator(options.example)),
            ),
        )
        target = translator.target_tokenizer if translator.target_tokenizer is not translator.tokenizer else None
        export(translator.model, folder, translator.tokenizer, target, card=card)
        if (run / "learning_curve.png").is_file():
            (folder / "learning_curve.png").write_bytes((run / "learning_curve.png").read_bytes())
        check(folder, translator, (*SENTENCES, options.example))
    print(f"{options.output_dir} is a whole repository: it loads without this package and translates the same")
    return Path(options.output_dir)


def push_folder(folder: Path, options: ExportArguments) -> None:
    from vanilla_transformer.hub import files_of, push, require_whole
    from vanilla_transformer.training.card import rename

    if options.dry_run:
        require_whole(folder)
        files = files_of(folder)
        for path in files:
            print(f"{path.stat().st_size:>12,}  {path.relative_to(folder)}")
        kind = "public" if options.public else "private"
        print(f"{len(files)} files would be pushed to {options.push_to} ({kind} if it is new)")
        return
    require_whole(folder)
    rename(folder / "README.md", options.push_to)
    address = push(
        folder,
        options.push_to,
        private=not options.public,
        revision=options.revision,
        create_pr=options.create_pr,
    )
    print(f"pushed: {address}")


if __name__ == "__main__":
    main()
