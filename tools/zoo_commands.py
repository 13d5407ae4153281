"""The models of the zoo on the command line; listing them loads no compiler."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.table import Table
from rich.text import Text

from ..models import zoo
from ..models.recipe import Recipe
from ..models.sentence_encoders import DENSE_ENCODERS, SENTENCE_ENCODERS
from .console.console import console
from .json_reports import write_report

TOKENS: Final = 128
"""Tokens of a call that kernels are chosen for."""


def list_zoo(report: Path | None) -> None:
    """Show the models of the zoo, what they are, and their parameters, and report them."""
    recipes = zoo.list_recipes()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for recipe in recipes:
        table.add_row(f"[bold]{recipe.name}[/bold]", recipe.summary)
        if recipe.parameters:
            spelled = ", ".join(f"{name}={value!r}" for name, value in recipe.parameters.items())
            table.add_row("", Text(spelled, style="dim"))
    console.print(table, highlight=False)
    _report(report, recipes)


def write_zoo_model(spec: str, output: Path | None, seed: int, report: Path | None, *, int8: bool = False) -> None:
    """Build a model, write it, and report what it is.

    Raises:
        ValueError: there is no such model, or nothing says where to, or it has no form in eight bits.
    """
    from .console.working import working

    name = spec.partition("(")[0].strip()
    if output is None and any(one.name == name for one in zoo.list_recipes()):
        raise ValueError("zoo needs OUT.onnx, where the model goes")
    sparse = [one for one in SENTENCE_ENCODERS if one not in DENSE_ENCODERS]
    if int8 and name not in sparse:
        raise ValueError(f"--int8: expected one of {', '.join(sparse)}, got {name}")
    output = output or Path(os.devnull)  # of a model that is not there
    with working(f"building {spec} of the zoo"):
        if int8:
            _write_in_eight_bits(spec, output)
        elif output.suffix == ".onnx" or not zoo.write_folder(spec, output):
            zoo.save(zoo.build(spec, seed=seed), output)
    _report(report, [recipe for recipe in zoo.list_recipes() if recipe.name == name])


def _write_in_eight_bits(spec: str, output: Path) -> None:
    from ..driver.compiler import optimize
    from ..pruning.examples.sentences import short_texts

    optimized = optimize(zoo.build(spec), rows=TOKENS, samples=short_texts())
    optimized.save(output)
    console.print(f"eight bits: {optimized.quantized}", highlight=False, soft_wrap=True)


def _report(report: Path | None, recipes: Sequence[Recipe]) -> None:
    models = [{"name": one.name, "summary": one.summary, "parameters": dict(one.parameters)} for one in recipes]
    write_report(report, "zoo", {"models": models})
