"""The notebook is stored with its outputs, and runs from its first cell to its last."""

import json
from pathlib import Path

import pytest


TOUR = Path(__file__).parent.parent / "docs" / "tour.ipynb"


def check_outputs(cells):
    """Pictures, the course's four scores, five translations, and no error."""
    cells = [cell for cell in cells if cell["cell_type"] == "code"]
    kinds = [[output["output_type"] for output in cell["outputs"]] for cell in cells]
    assert not any("error" in of_cell for of_cell in kinds)
    assert sum("display_data" in of_cell for of_cell in kinds) >= 5  # pictures
    assert printed_by(cells[-2]).count("->") == 5  # translations
    (course,) = [cell for cell in cells if "course_bleu(" in "".join(cell["source"])]
    assert printed_by(course).count("the course's BLEU") == 4
    assert "sacreBLEU of the four: Figure(score=" in printed_by(course)


def printed_by(cell):
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def test_the_tour_is_stored_with_its_outputs():
    assert TOUR.stat().st_size <= 1_000_000
    cells = json.loads(TOUR.read_text(encoding="utf-8"))["cells"]
    check_outputs(cells)
    numbers = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
    assert numbers == list(range(1, len(numbers) + 1)), "run from the first cell to the last"


@pytest.mark.slow
def test_the_tour_runs_to_its_end(monkeypatch, tmp_path):
    """With a short training: what a model learns is tested elsewhere."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("TOUR_UPDATES", "26")
    notebook = nbformat.read(TOUR, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(
        notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    check_outputs(notebook.cells)
