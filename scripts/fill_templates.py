"""Write training pairs made of a phrase book: greetings, single words, names, places, and things that are copied.

    vanilla phrases --directions en-de de-en --output_dir data/phrases

writes data/phrases/train.en-de.en, data/phrases/train.en-de.de and so on, for `--train_files` beside other text. The
bundled phrase book has English, German, French, Spanish and Chinese; `--book` names a folder with your own tables.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vanilla_transformer.command_line.parsing import key, parse_arguments
from vanilla_transformer.command_line.user_errors import errors_as_sentences
from vanilla_transformer.hub.languages import Languages
from vanilla_transformer.safe_files.atomic_writes import whole_folder
from vanilla_transformer.safe_files.input_files import lines_in_files
from vanilla_transformer.training.data.phrase_book import FOLDER, PhraseBook
from vanilla_transformer.training.data.phrase_pairs import phrase_pairs


@dataclass
class PhraseArguments:
    """Which pairs are made, and where they go."""

    directions: list[str] = key([], "Directions, such as en-de de-en.")
    output_dir: str = key("data/phrases", "Folder for the pairs.")
    book: str = key(str(FOLDER), "Folder with phrases.tsv, templates.tsv, names.tsv and places.tsv.")
    exclude: list[str] = key([], "Files with evaluation sentences. A filled template that equals one is dropped.")
    per_phrase: int = key(30, "Pairs made of each phrase, in different forms.")
    per_template: int = key(150, "Pairs made of each template, with different fillings.")
    seed: int = key(1, "Seed of the forms and fillings.")
    overwrite: bool = key(False, "Replace older pairs in the output folder.")

    def __post_init__(self) -> None:
        if not self.directions:
            raise ValueError("No direction is given: set --directions, for example --directions en-de.")


def main(argv: list[str] | None = None) -> None:
    with errors_as_sentences():
        (arguments,) = parse_arguments([PhraseArguments], __doc__, argv)
        write(arguments)


def write(arguments: PhraseArguments) -> None:
    """Writes the pairs of each direction, and prints their number."""
    book, excluded = PhraseBook.read(arguments.book), list(lines_in_files(arguments.exclude))
    directions = list(map(Languages.parse, arguments.directions))
    names = [f"train.{direction}.{language}" for direction in directions for language in direction]
    with whole_folder(arguments.output_dir, made_of=names, overwrite=arguments.overwrite) as folder:
        for direction in directions:
            pairs = phrase_pairs(
                book,
                direction,
                per_phrase=arguments.per_phrase,
                per_template=arguments.per_template,
                seed=arguments.seed,
                excluded=excluded,
            )
            sides = list(zip(*pairs, strict=True))
            for language, side in zip(direction, sides, strict=True):
                _write_lines(folder / f"train.{direction}.{language}", side)
            print(f"{direction}  {len(sides[0]):,} pairs")
    print(f"written to {arguments.output_dir}")


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
