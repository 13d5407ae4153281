"""The reference of the dialect and of the passes, made from their docstrings.

`python -m redpebble.tools.reference DIR` writes both pages. Each is Markdown, and says what `redpebble-opt` accepts:
operands, properties and results of an op, parameters of an attribute, options of a pass with their defaults.
"""

import inspect
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from xdsl.irdl import IRDLOperation, OpDef, ParamAttrDef, ParametrizedAttribute
from xdsl.passes import ModulePass

from redpebble import named_pipelines
from redpebble.dialect.pebble import Pebble
from redpebble.foundation.atomic_files import write_text
from redpebble.tools.pass_list import summary, told_options
from redpebble.universe import PASSES, PIPELINES, REDPEBBLE_UNIVERSE

GENERATED = "<!-- made by redpebble.tools.reference: change the docstrings -->"


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
        if issubclass(attribute, ParametrizedAttribute):
            lines += _entry(f"#{attribute.name}", attribute, _parameters(attribute.get_irdl_definition()))
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


def _parameters(definition: ParamAttrDef) -> dict[str, str]:
    return {"parameters": ", ".join(f"`{name}`" for name, _ in definition.parameters)}


def _pass_entry(kind: type[ModulePass]) -> list[str]:
    story = inspect.getdoc(import_module(kind.__module__)) or ""
    lines = [f"### `{kind.name}`", "", story, ""]
    return [*lines, *option_lines(kind), ""]


def option_lines(kind: type[ModulePass]) -> list[str]:
    """Return a line for each option of a pass."""
    return [f"- `{option.name}` ({option.default}): {option.text}".rstrip(": ") for option in told_options(kind)]


def write_reference(folder: Path) -> None:
    """Write both pages into a folder, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "dialect.md", dialect_page())
    write_text(folder / "passes.md", passes_page())


if __name__ == "__main__":
    write_reference(Path(sys.argv[1]))
