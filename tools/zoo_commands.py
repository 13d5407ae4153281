"""The models of the zoo on the command line; listing them loads no compiler."""

from collections.abc import Sequence
from pathlib import Path

from redpebble.bench.results.console import console
from redpebble.models import zoo
from redpebble.models.recipe import Recipe
from redpebble.tools.json_reports import write_report


def list_zoo(report: Path | None) -> None:
    """Show the models of the zoo, what they are, and their parameters, and report them."""
    recipes = zoo.list_recipes()
    width = max(len(recipe.name) for recipe in recipes) + 2
    for recipe in recipes:
        console.print(f"[bold]{recipe.name:<{width}}[/bold]{recipe.summary}", highlight=False)
        if recipe.parameters:
            spelled = ", ".join(f"{name}={value!r}" for name, value in recipe.parameters.items())
            console.print(f"{'':<{width}}{spelled}", style="dim", highlight=False)
    _report(report, recipes)


def write_zoo_model(spec: str, output: Path | None, seed: int, report: Path | None) -> None:
    """Build a model, write it, and report what it is.

    Raises:
        ValueError: nothing says where to.
    """
    from redpebble.bench.results.working import working

    if output is None:
        raise ValueError("zoo needs -o FILE, where the model goes")
    with working(f"building {spec} of the zoo"):
        zoo.save(zoo.build(spec, seed=seed), output)
    name = spec.partition("(")[0].strip()
    _report(report, [recipe for recipe in zoo.list_recipes() if recipe.name == name])


def _report(report: Path | None, recipes: Sequence[Recipe]) -> None:
    models = [{"name": one.name, "summary": one.summary, "parameters": dict(one.parameters)} for one in recipes]
    write_report(report, "zoo", {"models": models})
