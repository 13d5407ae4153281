"""The call and the command `check`: our results for a model against onnxruntime's, on random inputs or given ones."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import onnx_ir
import onnxruntime

from ...driver.compiler import compile as compile_model
from ...frontend.errors import InvalidModelError, UnsupportedModelError
from ...frontend.import_model import Source
from ...frontend.reading.model_source import read_runnable_model
from ...ort.any_model import session
from ...ort.model_looks import holds_networks
from ...ort.provider.register import register
from ...ort.sized_session import prepare_for
from ...verification.compare import CheckPlan, Run, agree, compare_runs
from ...verification.feeds import Feeds, InputChoice
from ...verification.oracle import Comparison, Oracle, Tolerance, exact_session, session_options
from ..console.console import console
from ..console.working import working
from ..json_reports import write_report
from ..tables import comparison_table
from .bisecting import Making, bisect


def _compiled(model: Path, outputs: Sequence[str]) -> Run:
    network = compile_model(model)

    def run(feeds: Feeds) -> Sequence[Any]:
        return network.run(outputs, feeds)

    return run


def _in_session(model: Path, outputs: Sequence[str]) -> Run:
    del outputs
    return _run_by_code(Oracle.of(lambda: exact_session(lambda options: session(model, options))))


def _run_by_code(oracle: Oracle) -> Run:
    """Return what runs a session by our code, which is made before a call of sizes that it waits for."""

    def run(feeds: Feeds) -> Sequence[Any]:
        prepare_for(oracle.session, feeds)
        return oracle.run(feeds)

    return run


def _with_provider(model: Path, outputs: Sequence[str]) -> Run:
    del outputs

    def made() -> onnxruntime.InferenceSession:
        options = session_options(1)
        options.add_provider_for_devices(register(), {})
        return onnxruntime.InferenceSession(str(model), options)

    return Oracle.of(made).run


WAYS: Final[Mapping[str, Making]] = MappingProxyType(
    {"compile": _compiled, "session": _in_session, "provider": _with_provider}
)
"""The ways in which we run a model, by the call that a user makes."""


def check(
    model: str | os.PathLike[str],
    *,
    way: str = "session",
    batches: Sequence[int] = (1, 7, 64),
    runs: int = 3,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    rtol: float = 1e-4,
    atol: float = 1e-5,
) -> list[Comparison]:
    """Return how far each output of a model is from onnxruntime's, at worst over random inputs.

    A value does not agree where it is further away than `atol` and `rtol` of it; `mismatches` counts these. The `way`
    is `session`, `compile` or `provider`; `runs` inputs are made for each of `batches`; `sizes` are those of other free
    axes, by name.

    Raises:
        ModelError: the model is unreadable, or not covered by `compile`.
        ValueError: there is no such way, no such axis, or a batch is none.
    """
    path = Path(model)
    plan = CheckPlan(batches, runs, seed, Tolerance(rtol, atol), InputChoice(dims=sizes or {}))
    _check_ways([way])
    original = read_runnable_model(path)
    oracle = Oracle(path, exact=True)
    return compare_runs(plan, original, oracle, WAYS[way](path, oracle.output_names))


def check_model(
    model: Path, plan: CheckPlan, ways: Sequence[str], report: Path | None, least: Path | None = None
) -> bool:
    """Compare each of our ways to run a model with onnxruntime; return whether all agree.

    Where none is named it is `compile`, or `session` for a model that is not covered from end to end. Where one differs
    and `least` is a path, the first node that does is shown, and the least model that still does is written there.

    Raises:
        ModelError: the model is unreadable, or not covered by a way that was named.
        ValueError: there is no such way.
    """
    _check_ways(ways)
    comparisons: list[Comparison] = []
    differing: list[str] = []
    with working("compiling for the comparison of", model):
        original = read_runnable_model(model)  # says more about a broken file than onnxruntime does
        oracle = Oracle(model, exact=True)
        made = {way: WAYS[way](model, oracle.output_names) for way in ways} or _first_that_covers(model, oracle)
    for way, run in made.items():
        with working(f"comparing {way} with onnxruntime on", model):
            found = compare_runs(plan, original, oracle, run)
        comparisons += [replace(one, name=f"{one.name}, {way}") if way != "compile" else one for one in found]
        if not agree(found):
            differing.append(way)
    agrees = _shown(comparisons, report)
    if least is not None:
        _bisect(model, plan, differing, least)
    return agrees


def _bisect(model: Path, plan: CheckPlan, differing: Sequence[str], least: Path) -> None:
    """Show where the first way that differs does so first."""
    if not differing:
        console.print("nothing differs, so that there is no layer to find", highlight=False)
        return
    with working("looking for the first layer that differs in", model):
        found = bisect(model, plan, WAYS[differing[0]], least)
    lines = found.lines() if found is not None else ["the outputs differ, but no cut of the model does by itself"]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def _check_ways(ways: Sequence[str]) -> None:
    for way in ways:
        if way not in WAYS:
            raise ValueError(f"way: expected one of {', '.join(WAYS)}, got {way!r}")


def _first_that_covers(model: Path, oracle: Oracle) -> dict[str, Run]:
    try:
        return {"compile": _compiled(model, oracle.output_names)}
    except UnsupportedModelError as error:
        console.print(f"not covered from end to end, so redpebble.session is checked: {error}", highlight=False)
        return {"session": _in_session(model, oracle.output_names)}


def check_against(model: Path, against: Path, plan: CheckPlan, report: Path | None) -> bool:
    """Compare two models in onnxruntime; return whether they agree.

    Where `against` holds sparse networks, it runs as it is, and once more with our library registered.

    Raises:
        ModelError: the model is unreadable.
    """
    original = read_runnable_model(model)
    with working("comparing", model):
        with suppress(InvalidModelError):  # onnxruntime reads formats that we do not
            read_runnable_model(against, any_version=True)
        comparisons = compare_runs(plan, original, Oracle(model, exact=True), Oracle(against, exact=True).run)
        if holds_networks(against):
            comparisons += compare_session(plan, model, original, against)
    return _shown(comparisons, report)


def compare_session(plan: CheckPlan, path: Path, original: onnx_ir.Model, networks: Source) -> list[Comparison]:
    """Compare a model with sparse networks, our library registered, with the original in onnxruntime."""
    native = Oracle.of(lambda: exact_session(lambda options: session(networks, options)))
    comparisons = compare_runs(plan, original, Oracle(path, exact=True), _run_by_code(native))
    return [replace(one, name=f"{one.name}, session") for one in comparisons]


def _shown(comparisons: Sequence[Comparison], report: Path | None) -> bool:
    console.print(comparison_table(comparisons))
    write_report(report, "check", {"agrees": agree(comparisons), "outputs": [asdict(one) for one in comparisons]})
    return agree(comparisons)
