"""Publish a trained run as a repository of the Hub: write its folder, check it, push it.

Write and check the folder. The numbers of its model card come from the run and from its evaluations:

    vanilla export --run runs/demo --output_dir runs/demo/hub --license cc-by-2.0
    vanilla export --run runs/mine --evaluations runs/mine/evaluation --output_dir hub/mine --dtype float16

Push it. A new repository is private unless --public is given; --dry_run lists the files and pushes nothing:

    vanilla export --run runs/demo --output_dir runs/demo/hub --push_to user/demo-en-de
    vanilla export --exported runs/demo/hub --push_to user/demo-en-de --revision v2 --create_pr

Write a Hugging Face Space, a web page to try the model, and push it with `hf upload`:

    vanilla export --run runs/demo --space --output_dir runs/demo/space

The check loads the folder with trust_remote_code=True in a process that cannot import this package. Its translations
must be those of the original model.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from vanilla_transformer import Translator
from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.check_export import SENTENCES, check, require_whole
from vanilla_transformer.hub.export_folder import export, round_weights
from vanilla_transformer.hub.push_folder import files_of, push
from vanilla_transformer.hub.saved_files import read_object
from vanilla_transformer.models.tokenization_vanilla_transformer import language_tag, language_tags
from vanilla_transformer.safe_files.atomic_writes import whole_folder
from vanilla_transformer.serving.space import APP, MODEL, write_space
from vanilla_transformer.training.reports.model_card import CardOptions, model_card, rename, require_license


LEARNING_CURVE, DESCRIPTION = "learning_curve.png", "run.json"


@dataclass
class ExportArguments:
    """What to export, what its card says, and where to push it."""

    run: str | None = key(None, "Folder of a finished training run.")
    output_dir: str | None = key(None, "Folder for the repository.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")
    exported: str | None = key(None, "A folder that was exported before, to push it unchanged, instead of --run.")
    space: bool = key(False, "Write a Space: the model with its web page, which `hf upload --repo-type space` pushes.")
    dtype: Literal["float32", "float16", "bfloat16"] = key(
        "float32",
        "Type of the exported weights. 16-bit types take half the space and may change a few translations.",
    )
    compact: bool = key(
        False, "Store the weights in 16 bits, half the space; loaded, they are float32 again. For use on CPUs."
    )

    evaluations: list[str] = key([], "Output folders of vanilla evaluate; their scores go into the card.")
    dataset: str | None = key(None, "Name of the corpus on the Hub, if the run read it from files.")
    license: str | None = key(None, "Identifier of the licence on the Hub, for example apache-2.0 or other.")
    license_name: str | None = key(None, "With --license other: name of the licence.")
    description: str | None = key(None, "What the model is for, in a sentence, which the web page shows too.")
    try_with: list[str] = key([], "Texts to try the model with, on its page.")
    notes: str | None = key(None, "A Markdown file; its text goes under the limitations of the card.")
    example: str | None = key(
        None, "Sentence that the card shows with its translation; by default one of the run's validation set."
    )

    push_to: str | None = key(None, "Name of the repository on the Hub, user/model; without it nothing is pushed.")
    public: bool = key(False, "Make a new repository public.")
    revision: str | None = key(None, "Branch to push to, created if needed; default: main.")
    create_pr: bool = key(False, "Open a pull request instead of a commit on the branch.")
    dry_run: bool = key(False, "List the files that would be pushed, and push nothing.")

    def __post_init__(self) -> None:
        if bool(self.run) == bool(self.exported):
            raise ValueError("Give either --run, to export it, or --exported, to push an exported folder.")
        if self.run and not self.output_dir:
            raise ValueError("Give --output_dir: the folder for the repository.")
        if self.exported and not self.push_to:
            raise ValueError("Give --push_to: the name of the repository on the Hub.")
        if self.space and self.push_to:
            raise ValueError(
                f"--space writes a folder only: push it with `hf upload {self.push_to} {self.output_dir} --repo-type "
                "space`, and leave out --push_to."
            )
        for_card = ("evaluations", "dataset", "license", "license_name", "description", "try_with", "notes")
        for_export = ("output_dir", "overwrite", "space", "compact", *for_card)
        for_push = ("public", "revision", "create_pr", "dry_run")
        for names, given, needed in ((for_export, self.run, "--run"), (for_push, self.push_to, "--push_to")):
            for name in names:
                if getattr(self, name) and not given:
                    raise ValueError(f"--{name} does nothing without {needed}: leave it out.")
        if self.compact and self.dtype != "float32":
            raise ValueError(
                f"--compact stores the weights of a float32 model: leave out --dtype {self.dtype}, or it."
            )
        if self.license is not None:
            require_license(self.license)
        if self.license_name and self.license != "other":
            raise ValueError(f"--license_name needs --license other, not --license {self.license}.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (options,) = parse_arguments([ExportArguments], __doc__, argv)
        if options.exported:
            folder = Path(options.exported)
        elif options.space:
            folder = export_space(Path(options.run), Path(options.output_dir), options)
        else:
            folder = export_run(Path(options.run), Path(options.output_dir), options)
        if options.push_to:
            push_folder(folder, options.push_to, options)


def export_run(run: Path, output_dir: Path, options: ExportArguments) -> Path:
    """Writes and checks the folder of the repository; returns it."""
    with whole_folder(output_dir, known_by="config.json", overwrite=options.overwrite) as folder:
        write_model(run, folder, options.push_to or output_dir.name, options)
    print(f"{output_dir} is complete: it loads without this package and gives the same translations")
    return output_dir


def export_space(run: Path, output_dir: Path, options: ExportArguments) -> Path:
    """Writes the folder of a Space, with the checked model in it; returns it."""
    with whole_folder(output_dir, known_by=APP, overwrite=options.overwrite) as folder:
        write_model(run, folder / MODEL, run.name, options)
        write_space(folder, run.name)
    print(f"{output_dir} is complete: try it with `python {output_dir / APP}`")
    return output_dir


def write_model(run: Path, folder: Path, name: str, options: ExportArguments) -> None:
    """Writes the repository of a model into a folder, and checks it."""
    if not (run / "model" / "config.json").is_file():
        raise ValueError(f"{run} holds no finished run: there is no {run / 'model'}. Train it to the end first.")
    translator = Translator.from_pretrained(
        run / "model", backend="torch", device="cpu", dtype=getattr(torch, options.dtype)
    )
    if options.compact:
        round_weights(translator.model)
    example = options.example or read_object(run / DESCRIPTION).get("example") or SENTENCES[0]
    card = model_card(run, translator.model, card_options(name, translator, options, example))
    target = translator.target_tokenizer if translator.target_tokenizer is not translator.tokenizer else None
    export(translator.model, folder, translator.tokenizer, target, card=card, compact=options.compact)
    if (run / LEARNING_CURVE).is_file():
        shutil.copyfile(run / LEARNING_CURVE, folder / LEARNING_CURVE)
    check(folder, translator, [tag + text for tag in tags_of(translator) for text in (*SENTENCES, example)])


def tags_of(translator: Translator) -> list[str]:
    """What asks a model for each of its target languages; one empty text for a model without tags."""
    return [f"{language_tag(language)} " for language in language_tags(translator.tokenizer)] or [""]


def card_options(name: str, translator: Translator, options: ExportArguments, example: str) -> CardOptions:
    tag = tags_of(translator)[0]
    example = tag + example.removeprefix(tag)
    translation = next(translator.translate([example]))[0].text
    return CardOptions(
        repo_id=name,
        license=options.license,
        license_name=options.license_name,
        description=options.description,
        try_with=options.try_with,
        notes=Path(options.notes).read_text(encoding="utf-8") if options.notes else None,
        evaluations=options.evaluations,
        dataset=options.dataset,
        example=(example, translation),
    )


def push_folder(folder: Path, repo_id: str, options: ExportArguments) -> None:
    """Pushes a complete folder, or lists its files for `--dry_run`."""
    require_whole(folder)
    if options.dry_run:
        files = files_of(folder)
        for path in files:
            print(f"{path.stat().st_size:>12,}  {path.relative_to(folder)}")
        visibility = "public" if options.public else "private"
        print(f"{len(files)} files would be pushed to {repo_id} ({visibility} if it is new)")
        return
    rename(folder / "README.md", repo_id)
    address = push(folder, repo_id, private=not options.public, revision=options.revision, create_pr=options.create_pr)
    print(f"pushed: {address}")


if __name__ == "__main__":
    main()
