"""A phrase book: phrases, templates, names and places in several languages, as tables that anyone can extend."""

import csv
from dataclasses import dataclass
from pathlib import Path


FOLDER = Path(__file__).parent / "phrases"  # its README.md describes the tables


@dataclass(frozen=True)
class PhraseBook:
    """The tables of a phrase book, one dict a line.

    Args:
        phrases: Complete phrases and single words, by language.
        templates: Sentences with slots in braces, by language.
        names: First names and surnames (`name`, `kind`, `zh`).
        places: Cities and countries, by language, with the `kind`.
    """

    phrases: list[dict[str, str]]
    templates: list[dict[str, str]]
    names: list[dict[str, str]]
    places: list[dict[str, str]]

    @classmethod
    def read(cls, folder: str | Path = FOLDER) -> "PhraseBook":
        """Reads the four tables of a folder."""
        return cls(*(_table(Path(folder) / f"{name}.tsv") for name in ("phrases", "templates", "names", "places")))

    def named(self, source: str, *kinds: str) -> list[dict[str, str]]:
        """Returns the names of some kinds. From Chinese, a name that stands for two has its first spelling."""
        rows = [row for row in self.names if row["kind"] in kinds]
        return list({row["zh"]: row for row in reversed(rows)}.values()) if source == "zh" else rows


def _table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
