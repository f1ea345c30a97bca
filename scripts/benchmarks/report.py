"""Tables of results: printed, kept as results.json, drawn as a picture."""

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vanilla_transformer.command_line.parsing import key
from vanilla_transformer.safe_files.atomic_writes import whole_folder, write_json
from vanilla_transformer.training.reports.plots import Bars, plot_bars
from vanilla_transformer.training.reports.tables import aligned
from vanilla_transformer.training.run_folder.run_directory import versions


RESULTS, PICTURE = "results.json", "picture.png"


@dataclass
class OutputArguments:
    """Where the results are kept."""

    output_dir: str | None = key(None, f"Folder for the results ({RESULTS}) and a picture; default: none is kept.")
    overwrite: bool = key(False, "Replace the output folder if it exists.")


@dataclass
class Table:
    """Results of several systems.

    Args:
        title: What was measured, and under which conditions.
        formats: The columns, and the format string of each.
        rows: The values of each system by column; a missing value is printed as a dash.
        drawn: The columns that the picture shows.
        reference: The system that the others are compared with.
        notes: Lines below the table.
    """

    title: str
    formats: dict[str, str]
    rows: dict[str, dict[str, Any]]
    drawn: list[str] = field(default_factory=list)
    reference: str | None = None
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [["", *self.formats]]
        for name, row in self.rows.items():
            cells = (form.format(row[column]) if column in row else "-" for column, form in self.formats.items())
            lines.append([name, *cells])
        return "\n".join([self.title, aligned(lines, numbers_right=True), *self.notes])


def draw_bars(tables: list[Table], picture: Path) -> None:
    """One panel for each drawn column."""
    panels = []
    for table in tables:
        for column in table.drawn:
            values = {name: row[column] for name, row in table.rows.items() if column in row}
            spreads = {name: tuple(row["spread"]) for name, row in table.rows.items() if "spread" in row}
            label = column.replace("to ", "times as fast as ", 1) if spreads else column
            panels.append(Bars(table.title, label, values, spreads, table.formats[column], table.reference))
    plot_bars(panels, picture)


def report(options: OutputArguments, tables: Iterable[Table]) -> None:
    """Prints tables as they are measured, and keeps them with a picture if there is an output folder.

    Args:
        options: The output folder.
        tables: The tables; an iterator that measures each when it is read.
    """
    output: AbstractContextManager[Path | None] = nullcontext()
    if options.output_dir:
        output = whole_folder(options.output_dir, made_of=(RESULTS, PICTURE), overwrite=options.overwrite)
    with output as folder:  # raises before the first measurement if the folder can't be written
        measured = []
        for table in tables:
            print(f"\n{table}", flush=True)
            measured.append(table)
        if folder is not None:
            write_results(folder / RESULTS, measured)
            draw_bars(measured, folder / PICTURE)
    if options.output_dir:
        print(f"\nall files are in {options.output_dir}")


def write_results(path: Path, tables: list[Table]) -> None:
    """Writes the tables as JSON, with the command and the versions of the packages."""
    contents = [{name: value for name, value in asdict(table).items() if name != "formats"} for table in tables]
    about = {"command": sys.argv, "versions": versions("ctranslate2")}
    write_json(path, {**about, "tables": contents})
