"""The notebook runs from its first cell to its last."""

from pathlib import Path

import pytest


TOUR = Path(__file__).parent.parent / "docs" / "tour.ipynb"


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
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [[output.output_type for output in cell.outputs] for cell in cells]
    assert not any("error" in kinds for kinds in outputs)
    assert sum("display_data" in kinds for kinds in outputs) >= 5  # pictures
    printed = "".join(output.get("text", "") for output in cells[-2].outputs)
    assert printed.count("->") == 5  # translations
    (course,) = [cell for cell in cells if "course_bleu(" in cell.source]
    printed = "".join(output.get("text", "") for output in course.outputs)
    assert printed.count("the course's BLEU") == 4
    assert "sacreBLEU of the four: Figure(score=" in printed
