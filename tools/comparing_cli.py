"""The command line of comparisons with onnxruntime: `check` and `bench`."""

from pathlib import Path
from typing import Annotated

import typer

from .cli_options import (
    Atol,
    Batches,
    Dims,
    InputFile,
    InputShapes,
    ModelPath,
    ReportPath,
    Rtol,
    Seed,
    some_runs,
)
from .option_texts import numbers, shapes, sizes, words


def check(
    model: ModelPath,
    against: Annotated[
        Path | None, typer.Option(metavar="OUT.onnx", help="Compare this model in onnxruntime, not our native code.")
    ] = None,
    batch: Batches = "1,7,64",
    runs: Annotated[int, typer.Option(help="Random inputs for each batch size.", callback=some_runs)] = 3,
    seed: Seed = 0,
    rtol: Rtol = 1e-4,
    atol: Atol = 1e-5,
    input_shape: InputShapes = None,
    dim: Dims = None,
    inputs: InputFile = None,
    way: Annotated[
        str,
        typer.Option(metavar="A,B", help="Ways to check: compile, session, provider; default: the first that works."),
    ] = "",
    report: ReportPath = None,
) -> None:
    """Compare with onnxruntime; exit code 1 when an output differs.

    Inputs are random, or those of --inputs.
    """
    from ..verification.compare import CheckPlan
    from ..verification.feeds import InputChoice
    from ..verification.oracle import Tolerance
    from .checking import check_against, check_model

    choice = InputChoice(shapes(input_shape), sizes(dim), inputs)
    plan = CheckPlan(numbers(batch), runs, seed, Tolerance(rtol, atol), choice)
    agrees = (
        check_model(model, plan, words(way), report) if against is None else check_against(model, against, plan, report)
    )
    raise typer.Exit(0 if agrees else 1)


def bench(
    model: ModelPath,
    batch: Batches = "1,32,128",
    threads: Annotated[str, typer.Option(metavar="N,N", help="Numbers of threads.")] = "1",
    against: Annotated[
        str,
        typer.Option(metavar="A,B", help="Engines beside: provider, onnxruntime, fp32, scipy, mkl, torch."),
    ] = "onnxruntime",
    seconds: Annotated[float, typer.Option(help="Measuring time for each batch and number of threads.")] = 1.0,
    input_shape: InputShapes = None,
    dim: Dims = None,
    inputs: InputFile = None,
    report: ReportPath = None,
) -> None:
    """Measure a session, and native code, against onnxruntime.

    Engines run in turn; medians, and ratios to onnxruntime, are shown: of the fastest calls where others disturbed.
    `session` is redpebble.session, which runs every model; `native` is redpebble.compile, without onnxruntime, which
    runs models that are covered from end to end.
    """
    from ..verification.feeds import InputChoice
    from ..verification.measuring import Budget
    from .benching.model_bench import OURS, BenchPlan
    from .commands import bench_and_print

    engines = (*OURS, *words(against))
    choice = InputChoice(shapes(input_shape), sizes(dim), inputs)
    bench_and_print(model, BenchPlan(numbers(batch), numbers(threads), engines, Budget(seconds), choice), report)
