"""The architecture as rules that a test holds: who may import whom, what may be large, what is listed where."""

import ast
import importlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from redpebble.runtime.store.cache import source_digest, source_files
from redpebble.universe import PASSES

ROOT = Path(__file__).parent.parent

LAYERS = [
    "foundation",
    "sparse",
    "kernels",
    "theory",
    "dialect",
    "frontend",
    "passes",
    "export",
    "lowering",
    "runtime",
    "verification",
    "models",
    "tuning",
    "options",
    "pipeline",
    "driver",
    "universe",
    "training",
    "ort",
    "distributed",
    "pruning",
    "pytorch",
    "tools",
    "aliases",
    "bench",
    "__main__",
    "__init__",
]
"""Folders, and modules at the root, bottom up: one may import from itself and from those before it."""

WINGS = ("ort", "distributed", "pruning", "pytorch", "training", "aliases", "bench", "tools")
"""Folders that nothing of the core imports, so that each can be left out."""

LOADED_ON_REQUEST = {"__init__", "__main__", "dialect/ops/pattern_traits", "theory/__init__"}
"""Modules that name what lies above them, and load it when it is asked for."""

ONLY_IN: dict[str, set[str]] = {
    "llvmlite.ir": {"lowering", "ort", "distributed"},
    "llvmlite.binding": {"lowering", "runtime", "ort"},
    "llvmlite": {"lowering", "runtime", "ort", "distributed"},
    "onnx": {"frontend", "export", "verification", "ort", "models", "pruning", "bench", "tools", "driver"},
    "onnx_ir": {
        "frontend",
        "export",
        "verification",
        "ort",
        "models",
        "pruning",
        "pytorch",
        "training",
        "bench",
        "tools",
        "driver",
    },
    "onnxruntime": {"frontend", "verification", "ort", "models", "pruning", "bench", "tools"},
    "mpi4py": {"distributed"},
    "torch": {"pytorch", "models"},
}
"""Package -> the folders that may import it."""

FORBIDDEN_STEMS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager"}
INNER = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of statements that hold statements."""
MOST_LINES = 700
MOST_FILES = 24

FOLDERS = tuple(layer for layer in LAYERS if (ROOT / layer).is_dir())
FILES = sorted([*(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")), *ROOT.glob("*.py")])
FILES.remove(ROOT / "setup.py")
EVERY_FILE = [*FILES, *sorted((ROOT / "tests").rglob("*.py"))]


@cache
def text_of(file: Path) -> str:
    return file.read_text()


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(text_of(file))


@cache
def statements_of(file: Path) -> tuple[ast.stmt, ...]:
    """All statements of a file, wherever they stand, without looking for them in expressions."""
    found: list[ast.AST] = [tree_of(file)]
    for node in found:
        found += [one for field in INNER for one in getattr(node, field, ())]
    return tuple(one for one in found if isinstance(one, ast.stmt))


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def place_of(file: Path) -> str:
    """The place of a file, such as `theory/pebbling/machine`, or `pipeline` at the root."""
    return str(file.relative_to(ROOT).with_suffix(""))


def layer_of(place: str) -> str:
    """The folder at the root, or the module there, that a place belongs to."""
    return place.split("/")[0]


@cache
def imports_of(file: Path) -> tuple[str, ...]:
    """The modules a file imports, wherever it does so; `from a import b` may be the module a.b, so both are given."""
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[str]:
    package = ("redpebble", *file.relative_to(ROOT).parts[:-1])
    for node in statements_of(file):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module, names, level):
                above = package[: len(package) + 1 - level] if level else ()
                start = ".".join((*above, module) if module else above)
                yield start
                yield from (f"{start}.{alias.name}" for alias in names)
            case _:
                pass


PLACES = {f"redpebble.{place_of(file).replace('/', '.')}": place_of(file) for file in FILES if file.stem != "__init__"}
"""Name of a module -> its place; a package as such is empty."""


def imported_places(file: Path) -> Iterator[str]:
    """The places of the modules of ours that a file imports."""
    yield from (PLACES[module] for module in imports_of(file) if module in PLACES)


def test_imports_run_down() -> None:
    wrong: list[str] = []
    for file in FILES:
        place = place_of(file)
        layer = LAYERS.index(layer_of(place))
        above = [other for other in imported_places(file) if LAYERS.index(layer_of(other)) > layer]
        if place not in LOADED_ON_REQUEST:
            wrong += [f"{place} imports {other}" for other in above]
    assert not wrong, wrong


def test_nothing_in_a_folder_imports_in_a_circle() -> None:
    """Modules and folders beside each other, in any folder, import each other in one direction only."""
    arrows: dict[Path, dict[str, set[str]]] = {}
    for file in FILES:
        place = Path(place_of(file))
        for other in map(Path, imported_places(file)) if str(place) not in LOADED_ON_REQUEST else ():
            depth = len(Path(os.path.commonpath([place, other])).parts)
            if depth:
                beside = arrows.setdefault(Path(*place.parts[:depth]), {})
                beside.setdefault(place.parts[depth], set()).add(other.parts[depth])
    circles: dict[str, list[str]] = {}
    for folder, graph in arrows.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circles[str(folder)] = error.args[1]
    assert not circles, circles


def test_files_import_each_other_relatively() -> None:
    """So that any tool that reads imports from files follows them in a checkout, whatever its folder is called."""
    absolute = re.compile(r"^\s*(?:from|import) redpebble\b", re.MULTILINE)
    inside = [file for file in FILES if layer_of(place_of(file)) != "bench"]
    assert not [name_of(file) for file in inside if absolute.search(text_of(file))]


def test_every_layer_exists() -> None:
    assert sorted(LAYERS) == sorted({layer_of(place_of(file)) for file in FILES})


def test_the_core_does_without_the_wings() -> None:
    wrong: list[str] = []
    for file in FILES:
        if layer_of(place_of(file)) not in WINGS and place_of(file) not in LOADED_ON_REQUEST:
            wrong += [
                f"{name_of(file)} imports {other}" for other in imported_places(file) if other.split("/")[0] in WINGS
            ]
    assert not wrong, wrong


def test_a_constant_is_written_once() -> None:
    values: dict[str, dict[str, ast.expr]] = {}
    for file in FILES:
        for node in tree_of(file).body:
            match node:
                case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                    if name.isupper():
                        values.setdefault(name, {})[name_of(file)] = value
                case _:
                    pass
    homes = {name: Counter(map(ast.unparse, found.values())) for name, found in values.items() if len(found) > 1}
    found = [(name, text) for name, texts in homes.items() for text, count in texts.items() if count > 1]
    assert not [(name, text, [*values[name]]) for name, text in found if not text.startswith("TypeVar")]


def test_heavy_packages_stay_in_their_layers() -> None:
    wrong: list[str] = []
    for file in FILES:
        for module in imports_of(file):
            # the longest entry decides: llvmlite.ir before llvmlite
            matching = [package for package in ONLY_IN if module == package or module.startswith(f"{package}.")]
            if matching and layer_of(place_of(file)) not in ONLY_IN[max(matching, key=len)]:
                wrong.append(f"{name_of(file)} imports {module}")
    assert not wrong, wrong


def test_a_file_is_short_and_says_what_it_is() -> None:
    assert not [name_of(file) for file in EVERY_FILE if len(text_of(file).splitlines()) > MOST_LINES]
    assert not [name_of(file) for file in EVERY_FILE if file.stem in FORBIDDEN_STEMS]


def test_a_module_has_a_docstring_and_no_loose_ends() -> None:
    assert not [name_of(file) for file in FILES if not ast.get_docstring(tree_of(file))]
    loose = re.compile(r"\b(?:TODO|FIXME|XXX)\b|NotImplementedError|type: ignore")
    assert not [name_of(file) for file in FILES if loose.search(text_of(file))]


def test_a_docstring_begins_with_a_noun_or_a_verb_and_is_no_genitive_fragment() -> None:
    fragment = re.compile(r"^(?:Of|Who|Whose|That|By|Those|Them|Likewise)\b|^\w+ of (?:them|these|it)\.$")
    docstrings = (
        (f"{name_of(file)}:{node.lineno}", node.value.value)
        for file in EVERY_FILE
        for node in statements_of(file)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )
    assert not [(place, text) for place, text in docstrings if fragment.search(text)]


def test_every_error_stands_in_the_tree() -> None:
    tree = ast.get_docstring(tree_of(ROOT / "foundation" / "errors.py")) or ""
    rows = re.findall(r"^([ │├└─]*)(\w+Error)\b.*?(redpebble[.\w]+)$", tree, re.MULTILINE)
    parents = ["Exception"]
    for indent, name, home in rows:
        depth = (len(indent) - 4) // 4
        found = getattr(importlib.import_module(home.removesuffix(f".{name}")), name)
        assert found.__mro__[1].__name__ == parents[depth], name
        parents[depth + 1 :] = [name]
    defined = {
        node.name
        for file in FILES
        for node in tree_of(file).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(one, ast.Name) and one.id.endswith(("Error", "Exception")) for one in node.bases)
    }
    assert defined - {"FixedSize", "NotCovered"} == {name for _, name, _ in rows}


def words_of(class_name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


def test_a_pass_is_one_file_with_a_filecheck_file_that_does_and_one_that_refuses_or_keeps() -> None:
    defined = {
        (file.parent.name, file.stem, node.name)
        for file in FILES
        if layer_of(place_of(file)) == "passes"
        for node in statements_of(file)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(one) == "ModulePass" for one in node.bases)
    }
    assert defined == {(stage, words_of(name), name) for stage, names in PASSES.items() for name in names}
    filecheck, missing = ROOT / "tests" / "filecheck" / "passes", list[str]()
    for stage, stem, _ in sorted(defined):
        if not (filecheck / stage / f"{stem}.mlir").exists():
            missing.append(f"{stage}/{stem}.mlir")
        if not any((filecheck / stage / f"{stem}_{word}.mlir").exists() for word in ("refused", "kept")):
            missing.append(f"{stage}/{stem}_refused.mlir")
    assert not missing


def test_the_digest_of_the_sources_changes_with_every_source_file(tmp_path: Path) -> None:
    files = source_files()
    assert {Path(file).resolve() for file in files.values()} == {file.resolve() for file in FILES}
    chosen = {name: files[name] for name in sorted(files)[:: len(files) // 8]}
    before = source_digest(chosen, tmp_path)
    for name, file in chosen.items():
        changed = tmp_path / "changed.py"
        changed.write_bytes(Path(file).read_bytes() + b" ")
        assert source_digest(chosen | {name: str(changed)}, tmp_path) != before
        assert source_digest({other: path for other, path in chosen.items() if other != name}, tmp_path) != before
    assert source_digest(chosen, tmp_path) == before


def test_no_folder_of_sources_is_full() -> None:
    counts = Counter(file.parent for file in FILES if file.name != "__init__.py")
    assert not {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MOST_FILES}


def test_the_universe_is_light_to_import() -> None:
    code = "import sys, redpebble.universe; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "redpebble.universe" in loaded
    assert not {"numpy", "scipy", "onnx", "onnx_ir", "onnxruntime", "llvmlite"} & {*loaded}
