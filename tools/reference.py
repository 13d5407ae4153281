"""The reference of the dialect and of the passes, made from their docstrings.

`python -m redpebble.tools.reference DIR` writes both pages, one of all operators, and the tutorial as a
notebook. Each page says what `redpebble-opt` accepts: operands, properties and results of an op, parameters of an
attribute, options of a pass with their defaults.
"""

import inspect
import json
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from xdsl.irdl import IRDLOperation, OpDef
from xdsl.passes import ModulePass

from ..dialect.pebble import Pebble
from ..dialect.record import Record
from ..driver import named_pipelines
from ..foundation.atomic_files import write_text
from ..frontend.operators.table import CONVERTERS, LAYERS
from ..universe import PASSES, PIPELINES, REDPEBBLE_UNIVERSE
from .pass_list import summary, told_options

GENERATED = "<!-- made by redpebble.tools.reference: change the docstrings -->"

BLOCK: Final = re.compile(r"(?:^<!-- needs [^>]* -->\n)?^```python\n(.*?)^```$\n?", re.MULTILINE | re.DOTALL)
"""A block of Python, with the comment that says what its test needs."""

SITE_LINK: Final = re.compile(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n?|\[([^\]]*)\]\((?!https?:)[^)]*\)")
"""Pictures and links that lead into the site, which a notebook is no part of."""


def dialect_page() -> str:
    """Return the page of all ops and attributes of the dialect, in the order in which a reader should meet them."""
    lines = [
        GENERATED,
        "# The dialect `pebble`",
        "",
        import_module("redpebble.dialect").__doc__ or "",
        "",
        "## Ops",
        "",
    ]
    for op in Pebble.operations:
        if issubclass(op, IRDLOperation):
            lines += _entry(op.name, op, _op_parts(op.get_irdl_definition()))
    lines += ["## Attributes and types", ""]
    for attribute in Pebble.attributes:
        if issubclass(attribute, Record):
            lines += _entry(f"#{attribute.name}", attribute, _fields(attribute))
    return "\n".join(lines)


def passes_page() -> str:
    """Return the page of all passes by stage, each with what it shows of itself before and after, and its options."""
    lines = [GENERATED, "# The passes", ""]
    lines += [
        "`redpebble-opt IN.onnx -p 'NAME{option=value}'` runs one; `redpebble compile --skip-passes` leaves out.",
        "",
    ]
    for stage, names in PASSES.items():
        lines += [f"## {stage.replace('_', ' ').capitalize()}", ""]
        for name in names:
            lines += _pass_entry(_pass_of(stage, name))
    lines += ["## Pipelines", "", f"{' '.join((inspect.getdoc(named_pipelines) or '').split())}", ""]
    for name in PIPELINES:
        kind = REDPEBBLE_UNIVERSE.all_passes[f"pebble-{name}"]()
        lines += [f"### `{kind.name}`", "", summary(kind), "", *option_lines(kind), ""]
    return "\n".join(lines)


def operators_page() -> str:
    """Return the page of all operators that become ops of ours, and in which ways of running a model."""
    lines = [
        GENERATED,
        "# The operators",
        "",
        "What [is covered](../covered.md), operator by operator. `compile` takes models of these alone, with float32",
        "tensors. `session`, `optimize` and `register` take every model that onnxruntime runs, of it layers with",
        "sparse weights, with what stands around them; tensors may be float16 or bfloat16, which become float32 there.",
        "",
        "| operator | domain | what it becomes | compile | session, optimize, register |",
        "|---|---|---|---|---|",
    ]
    for domain, name in sorted(CONVERTERS, key=lambda key: (key not in LAYERS, key[1].lower(), key[0])):
        becomes = "a layer, or attention" if (domain, name) in LAYERS else "a part of a network, beside a layer"
        ways = "float32 | float32, float16, bfloat16"
        lines.append(f"| {name} | {domain or 'ai.onnx'} | {becomes} | {ways} |")
    return "\n".join([*lines, ""])


def _pass_of(stage: str, class_name: str) -> type[ModulePass]:
    words = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in class_name)
    loaded = REDPEBBLE_UNIVERSE.all_passes[f"pebble{words}"]()
    if not loaded.__module__.startswith(f"redpebble.passes.{stage}."):
        raise ValueError(f"{loaded.__module__} is not in stage {stage}")
    return loaded


def _entry(title: str, kind: type, parts: Mapping[str, str]) -> list[str]:
    listed = [f"- {label}: {text}" for label, text in parts.items() if text]
    return [f"### `{title}`", "", inspect.getdoc(kind) or "", "", *listed, ""]


def _op_parts(definition: OpDef) -> dict[str, str]:
    parts = {
        "operands": [name for name, _ in definition.operands],
        "properties": [*definition.properties],
        "attributes": [*definition.attributes],
        "regions": [name for name, _ in definition.regions],
        "results": [name for name, _ in definition.results],
    }
    return {label: ", ".join(f"`{name}`" for name in names) for label, names in parts.items()}


def _fields(attribute: type[Record]) -> dict[str, str]:
    return {"fields": ", ".join(f"`{name}`" for name in attribute.codecs)}


def _pass_entry(kind: type[ModulePass]) -> list[str]:
    story = inspect.getdoc(import_module(kind.__module__)) or ""
    lines = [f"### `{kind.name}`", "", story, ""]
    return [*lines, *option_lines(kind), ""]


def option_lines(kind: type[ModulePass]) -> list[str]:
    """Return a line for each option of a pass."""
    return [f"- `{option.name}` ({option.default}): {option.text}".rstrip(": ") for option in told_options(kind)]


def notebook(page: str) -> dict[str, object]:
    """Return a page in Markdown as the content of a notebook, version 4.5 of the format."""
    # the blocks are every second part
    parts = BLOCK.split(page)
    cells = [_cell(number, part.strip("\n"), is_code=number % 2 == 1) for number, part in enumerate(parts)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": [cell for cell in cells if cell["source"]],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(number: int, text: str, *, is_code: bool) -> dict[str, object]:
    if is_code:
        # a picture that is saved is also shown below its cell
        shown = re.sub(r"^(\w+)\.savefig\(.*\)$", r"\g<0>\n\1", text, flags=re.MULTILINE)
        source = shown.splitlines(keepends=True)
        return {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{number}",
            "metadata": {},
            "outputs": [],
            "source": source,
        }
    text = SITE_LINK.sub(lambda found: found[1] or "", text)
    return {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}


def write_notebook(page: Path, path: Path) -> None:
    """Write the notebook of a page.

    Raises:
        OSError: one cannot be read, or the other not written.
    """
    write_text(path, json.dumps(notebook(page.read_text(encoding="utf-8")), indent=1) + "\n")


def write_reference(folder: Path) -> None:
    """Write the pages and the notebooks of two tutorials into a folder, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "dialect.md", dialect_page())
    write_text(folder / "passes.md", passes_page())
    write_text(folder / "operators.md", operators_page())
    for name in ("theory", "own-sparsity"):
        write_notebook(folder.parent / f"{name}.md", folder / f"{name}.ipynb")


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]))
