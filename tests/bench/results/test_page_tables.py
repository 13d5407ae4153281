"""Tables between markers of pages: each has a benchmark that writes it, with the columns that the page shows."""

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from redpebble.bench.results import page_tables
from redpebble.bench.results.page_tables import PageTable, mean_cells, with_table

ROOT = Path(__file__).parents[3]
MARKER = re.compile(r"<!-- (.+?): begin -->\n(.*?)<!-- \1: end -->", re.DOTALL)
WORDS_OF_THE_PAGE = 6000
"""Words of bench/README.md, without the bars of its tables."""

DOCS = ("index", "sentence-encoders", "workers")
PAGES = ("README.md", "bench/README.md", "bench/targets.md", *(f"docs/{name}.md" for name in DOCS))


def benchmarks() -> list[ModuleType]:
    files = [
        path for path in sorted((ROOT / "bench").rglob("*.py")) if "PageTable(" in path.read_text(encoding="utf-8")
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    return [importlib.import_module(f"redpebble.{name}") for name in names if not name.endswith("page_tables")]


TABLES = [(module, table) for module in benchmarks() for table in vars(module).values() if isinstance(table, PageTable)]


def shown(table: PageTable) -> list[str]:
    """What a page has between the markers of a table, for each machine."""
    page = (ROOT / table.page).read_text(encoding="utf-8")
    names = rf"{re.escape(table.name)} on [\w-]+" if table.of_machine else re.escape(table.name)
    return [text for name, text in MARKER.findall(page) if re.fullmatch(names, name)]


@pytest.mark.parametrize("table", [table for _, table in TABLES], ids=lambda table: f"{table.name} of {table.page}")
def test_a_page_has_what_a_benchmark_writes(table: PageTable) -> None:
    found = shown(table)
    assert found, f"{table.page} has no markers of {table.name!r}"
    for text in found:
        head = next(line for line in text.splitlines() if line.startswith("|"))
        cells = [cell.strip() for cell in head.strip("|").split("|")]
        assert cells[: len(table.heads)] == list(table.heads), table.name


def test_every_table_between_markers_has_a_benchmark() -> None:
    known = {(Path(table.page).name, table.name) for _, table in TABLES}
    for page in PAGES:
        for name, _ in MARKER.findall((ROOT / page).read_text(encoding="utf-8")):
            assert {(Path(page).name, name), (Path(page).name, name.rpartition(" on ")[0])} & known, f"{page}: {name}"


def test_every_table_of_the_page_of_measurements_stands_between_markers() -> None:
    page = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    by_hand = [line for line in MARKER.sub("", page).splitlines() if line.startswith("|")]
    assert not by_hand
    assert len(page.replace("|", " ").split()) <= WORDS_OF_THE_PAGE


@pytest.mark.parametrize(
    "module", {module.__name__: module for module, _ in TABLES}.values(), ids=lambda one: one.__name__
)
def test_a_benchmark_with_a_table_has_the_option_that_writes_it(module: ModuleType) -> None:
    parameters = inspect.signature(module.main).parameters
    always = {"redpebble.bench.results.quality_plot"}
    assert "write" in parameters or module.__name__ in always


def test_a_run_replaces_the_table_of_its_machine_and_keeps_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n<!-- layers on zen: begin -->\nold\n<!-- layers on zen: end -->\nreasons\n")
    table = PageTable("layers", ("layer",), page)
    for cpu, cell in (("tiger", "1x"), ("zen", "2x"), ("tiger", "3x")):
        monkeypatch.setattr(page_tables, "describe_machine", lambda cpu=cpu: {"model": "A CPU", "cpu": cpu})
        with table.rows("ratio", write=True) as add:
            add("8x8", cell)
    text = page.read_text()
    assert re.findall(r"<!-- (.*) -->", text) == [
        f"layers on {cpu}: {word}" for cpu in ("zen", "tiger") for word in ("begin", "end")
    ]
    assert "| layer | ratio |\n|---|---|\n| 8x8 | 2x |\n<!-- layers on zen: end -->" in text
    assert "| 8x8 | 3x |\n<!-- layers on tiger: end -->\nreasons\n" in text
    assert re.search(r"tiger: begin -->\nA CPU \(tiger\), onnxruntime [\d.]+: `python -m.*`\n\n\| layer", text)
    assert "old" not in text
    assert "1x" not in text


def test_a_page_is_as_it_was_where_a_run_fails_or_does_not_write(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- layers: begin -->\nold\n<!-- layers: end -->\n")
    table = PageTable("layers", ("layer",), page, of_machine=False)
    with table.rows() as add:
        add("new")
    with pytest.raises(ZeroDivisionError), table.rows(write=True) as add:
        add(1 / 0)
    assert page.read_text() == "<!-- layers: begin -->\nold\n<!-- layers: end -->\n"


def test_a_table_of_another_machine_needs_one_of_the_same_name() -> None:
    with pytest.raises(ValueError, match=r"^table of layers on zen: expected a place between"):
        with_table("<!-- wide layers on tiger: begin -->\n<!-- wide layers on tiger: end -->", "layers on zen", ["new"])


def test_means_are_geometric_and_stand_by_row_and_column() -> None:
    cases = [(8, "0.9", (1.0, 40.0)), (8, "0.9", (4.0, 10.0)), (8, "0.5", (1.5, 2.0))]
    assert mean_cells(cases) == {8: {"0.9": "2.0x / 20x", "0.5": "1.50x / 2.0x"}}
