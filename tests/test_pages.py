"""README and every page of docs/ do what they say: their code runs, and what they print is what they show."""

import contextlib
import importlib.util
import io
import logging
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import redpebble
from redpebble.frontend.operators.table import CONVERTERS
from redpebble.models import zoo
from redpebble.tools import main as cli
from redpebble.tools import opt
from redpebble.tools.reference import dialect_page, passes_page
from tests.support.genai_folder import write_folder

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW_NEEDS = {
    "OUT.so",
    "torch",
    "transformers",
    "keras",
    "jax",
    "sklearn",
    "half a minute",
    "onnxruntime_genai",
    "tokenizers",
} | {"apache_beam", "dask", "pyspark", "ray"}
"""What blocks need that run with the slow tests: modules, where they are installed, or time."""

SLOW_PAGES = {"libraries.md", "onnxruntime.md"}
SLOW_OPTIONS = ("--library", "--report")
"""What takes native code for three kinds of CPU, searches, or a provider that is compiled."""

FENCE = re.compile(
    r"(?:^ *<!-- needs (?P<needs>[^>]*) -->\n)?^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<code>.*?)^ *```$"
    r"(?:\nprints\n```\n(?P<shown>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """Code of a page, the modules that it needs, and what the page says that it prints."""

    language: str
    code: str
    needs: frozenset[str]
    shown: str | None


def blocks_of(page: Path) -> Iterator[Block]:
    for found in FENCE.finditer(page.read_text(encoding="utf-8")):
        needs = frozenset(word.strip() for word in (found["needs"] or "").split(",") if word.strip())
        yield Block(found["language"], textwrap.dedent(found["code"]), needs, found["shown"])


def run_python(code: str, page: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec"), names)
    return printed.getvalue()


def run_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = shlex.split(line, comments=True)
    if program == "redpebble-opt":
        opt.main(arguments)
        return
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code, line


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def folder(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the models that pages speak of."""
    for name in ("model.onnx", "IN.onnx"):
        zoo.save(zoo.build("ffnn(depth=2, width=64, density=0.1)"), tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDPEBBLE_CACHE", str(cache))
    level = logging.getLogger("redpebble").level
    yield tmp_path
    logging.getLogger("redpebble").setLevel(level)


def walk(page: Path, monkeypatch: pytest.MonkeyPatch, *, slow: bool) -> int:
    """Run the blocks of a page in their order; returns how many ran."""
    names: dict[str, object] = {"__name__": "page", "x": np.ones((4, 64), dtype=np.float32)}
    done = 0
    for block in blocks_of(page):
        missing = any(word.isidentifier() and importlib.util.find_spec(word) is None for word in block.needs)
        if missing or (block.needs & SLOW_NEEDS and not slow):
            continue
        if block.language == "python":
            printed = run_python(block.code, page.name, names)
            assert block.shown is None or printed == block.shown
        elif block.language == "sh":
            for line in block.code.splitlines():
                if line.startswith(("redpebble ", "redpebble-opt ")) and (
                    slow or not any(option in line for option in SLOW_OPTIONS)
                ):
                    run_command(line, monkeypatch)
        else:
            continue
        done += 1
    return done


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in SLOW_PAGES], ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = walk(page, monkeypatch, slow=False)
    assert ran or not any(block.language in ("python", "sh") and not block.needs for block in blocks_of(page))


@pytest.mark.slow
def test_a_model_runs_inside_onnxruntime_as_the_page_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_command("redpebble optimize IN.onnx OUT.onnx", monkeypatch)
    try:
        assert walk(ROOT / "docs" / "onnxruntime.md", monkeypatch, slow=True) == 3
    finally:
        redpebble.unregister()


@pytest.mark.slow
def test_the_plot_of_the_tutorial_is_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk(ROOT / "docs" / "theory.md", monkeypatch, slow=True)
    assert (folder / "transfers.svg").exists()


@pytest.mark.slow
def test_what_is_deployed_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk(ROOT / "docs" / "deploying.md", monkeypatch, slow=True)
    assert (folder / "OUT.so").exists()


@pytest.mark.slow
def test_a_dense_model_becomes_a_deployed_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert walk(ROOT / "docs" / "dense-to-deployed.md", monkeypatch, slow=True) == 4
    assert (folder / "OUT.so").exists()


@pytest.mark.slow
def test_a_dense_module_becomes_a_good_sparse_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    assert walk(ROOT / "docs" / "good-sparse-models.md", monkeypatch, slow=True) == 3


@pytest.mark.slow
@pytest.mark.parametrize("page", ["your-model.md", "why-not-faster.md"])
def test_exports_of_other_libraries_are_taken(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert walk(ROOT / "docs" / page, monkeypatch, slow=True) >= 2


@pytest.mark.slow
def test_a_language_model_generates_as_the_page_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime_genai")
    write_folder(folder / "IN_FOLDER")
    (folder / "text.txt").write_text("The capital of France is Paris. " * 150)
    assert walk(ROOT / "docs" / "language-models.md", monkeypatch, slow=True) >= 4
    assert (folder / "OUT_FOLDER" / "model.so").exists()


def test_lists_and_tables_do_not_begin_within_a_paragraph() -> None:
    """The site would show their marks: a list or a table behind a line of text, or behind code, is a paragraph."""
    begins, goes_on = re.compile(r"(?:- |\d+\. |\|)"), re.compile(r"\s*(?:- |\d+\. |\||#|<!--|$)|\s{2}")
    for page in PAGES:
        text = re.sub(r"^( *)```.*?^\1```$", "```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for before, line in pairwise(text.splitlines()):
            assert not begins.match(line) or goes_on.match(before), f"{page.name}: {line}"


def test_links_lead_to_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            # the site holds docs/ alone, and its pages of the reference are made when it is built
            assert page.name == "README.md" or not target.startswith(".."), f"{page.name}: {target}"
            assert (page.parent / target).exists() or target.startswith("reference/"), f"{page.name}: {target}"


def test_the_navigation_of_the_site_has_every_page_and_no_empty_group() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2].splitlines()
    entries = [re.fullmatch(r"( +)- ([^:]+): ?(\S*)", line) for line in nav]
    assert all(entries)
    found = [entry.groups() for entry in entries if entry]
    assert {page.name for page in PAGES if page.parent.name == "docs"} <= {target for _, _, target in found}
    for (indent, title, target), (following, _, _) in pairwise([*found, ("", "", "")]):
        assert bool(target) == (len(following) <= len(indent)), title


def test_every_operator_of_the_frontend_is_said_to_be_covered() -> None:
    told = (ROOT / "docs" / "covered.md").read_text(encoding="utf-8")
    yes = {word for row in re.findall(r"^\| (.*?) \| yes", told, re.MULTILINE) for word in re.findall(r"\w+", row)}
    assert {name for _, name in CONVERTERS} <= yes


def test_the_reference_names_every_op_and_pass_with_options() -> None:
    dialect, passes = dialect_page(), passes_page()
    assert "### `pebble.linear`" in dialect
    assert "- operands: `x`, `weight`, `bias`" in dialect
    assert "### `pebble-sparsify`" in passes
    assert "- `threshold` (default `0.62`): Density below which a weight becomes sparse" in passes


def test_ops_that_pages_show_exist() -> None:
    known = dialect_page() + passes_page()
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "mlir":
                assert all(name in known for name in re.findall(r"\bpebble\.\w+", block.code)), page.name


def test_the_picture_of_speedups_is_the_measured_one() -> None:
    shown, drawn = ROOT / "docs" / "pictures" / "speedup.svg", ROOT / "bench" / "plots" / "speedup.svg"
    assert shown.read_bytes() == drawn.read_bytes(), f"copy {drawn} to {shown}"


def test_nothing_of_this_machine_is_told() -> None:
    assert not [page.name for page in PAGES if os.path.expanduser("~") + "/" in page.read_text(encoding="utf-8")]
