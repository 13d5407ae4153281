"""Notebooks of docs/notebooks run from the first cell to the last."""

import json
from pathlib import Path
from typing import Any

import pytest

import redpebble

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib").use("Agg")

NOTEBOOKS = sorted((Path(redpebble.__file__).parent / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_students_are_sparse_and_good(path: Path) -> None:
    """With shorter trainings and fewer rounds of measuring."""
    space: dict[str, Any] = {}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            text = "".join(cell["source"]).replace("steps=400", "steps=150").replace("steps=800", "steps=150")
            exec(compile(text.replace("range(300)", "range(5)"), str(path), "exec"), space)
    dense = space["accuracy"](space["dense"])
    assert dense > 85
    student = space["students"][0.9]
    assert float((student[0].weight == 0).float().mean()) > 0.89
    assert space["accuracy"](student) > dense - 4
    assert len(space["sparse_points"]) == len(space["students"])
