"""The notebook of a page runs from top to bottom, holds its text, and leads nowhere that it does not come with."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from redpebble.tools.reference import notebook, write_notebook

THEORY = Path(__file__).parents[2] / "docs" / "theory.md"


def cells(kind: str) -> list[str]:
    found: Any = notebook(THEORY.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def test_every_block_of_python_is_a_cell_and_every_word_is_kept() -> None:
    page = THEORY.read_text()
    assert len(cells("code")) == page.count("```python\n") >= 6
    assert "## Orders decide what moves" in "".join(cells("markdown"))
    text = "".join(cells("markdown"))
    assert "](pictures/" not in text
    assert "<!-- needs" not in text
    assert "](https://arxiv.org/abs/2301.01048)" in text


def test_the_file_is_a_notebook_of_version_four(tmp_path: Path) -> None:
    write_notebook(THEORY, tmp_path / "theory.ipynb")
    written = json.loads((tmp_path / "theory.ipynb").read_text())
    assert (written["nbformat"], {*written}) == (4, {"cells", "metadata", "nbformat", "nbformat_minor"})
    assert len({cell["id"] for cell in written["cells"]}) == len(written["cells"])
    for cell in written["cells"]:
        assert ({"outputs", "execution_count"} <= {*cell}) == (cell["cell_type"] == "code")


@pytest.mark.slow
def test_its_cells_run_one_after_the_other_and_the_last_one_shows_the_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in cells("code"):
            exec(compile(code, "cell", "exec"), names)
    assert cells("code")[-1].endswith("\nfigure")
    assert [axes.get_title(loc="left").partition(":")[0] for axes in names["figure"].axes] == [
        "random",
        "shuffled band",
        "grown for M = 20",
    ]


@pytest.mark.slow
def test_cells_add_a_layout_an_operator_and_a_sparsifier() -> None:
    pytest.importorskip("onnxscript")
    page, names = (THEORY.parent / "own-sparsity.md").read_text(), dict[str, Any]()
    written: Any = notebook(page)["cells"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        for cell in written:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), "cell", "exec"), names)
    assert said.getvalue().splitlines() == ["['0.10', '0.10']", "6528 torch.float16", "True", "288"]
