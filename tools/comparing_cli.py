"""The command line of comparisons with onnxruntime: `check` and `bench`."""

from pathlib import Path
from typing import Annotated

import typer

from ..foundation.threads import usable_threads
from .cli_options import (
    Atol,
    Batches,
    Cpu,
    CpuLevel,
    Dims,
    InputFile,
    InputShapes,
    ModelPath,
    ReportPath,
    Rtol,
    Seed,
    new_file,
    new_model_if_any,
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
    bisect: Annotated[
        Path | None,
        typer.Option(
            metavar="LEAST.onnx",
            help="Where results differ, name the first node that does, and write the least model that still does; "
            "least.onnx where no name follows.",
            callback=new_model_if_any,
        ),
    ] = None,
    cpu: Cpu = CpuLevel.HOST,  # noqa: ARG001 - its callback does it
    report: ReportPath = None,
) -> None:
    """Compare with onnxruntime; exit code 1 when an output differs.

    Inputs are random, or those of --inputs. With --bisect, cuts of the model are compared until the first node is found
    whose results differ; LEAST.npz has the inputs of LEAST.onnx on which they do.
    """
    _refuse_both(bisect, against)
    from ..verification.compare import CheckPlan
    from ..verification.feeds import InputChoice
    from ..verification.oracle import Tolerance
    from .comparing.checking import check_against, check_model

    choice = InputChoice(shapes(input_shape), sizes(dim), inputs)
    plan = CheckPlan(numbers(batch), runs, seed, Tolerance(rtol, atol), choice)
    agrees = (
        check_model(model, plan, words(way), report, bisect)
        if against is None
        else check_against(model, against, plan, report)
    )
    raise typer.Exit(0 if agrees else 1)


def _refuse_both(bisect: Path | None, against: Path | None) -> None:
    if bisect is not None and against is not None:
        raise ValueError("expected --bisect without --against, got both")


def bench(
    model: ModelPath,
    batch: Batches = "1,32,128",
    threads: Annotated[str, typer.Option(metavar="N,N", help="Numbers of threads.")] = "1",
    against: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Engines beside: openvino (where installed, by default), openvino-bf16, deepsparse, provider, fp32, "
            "scipy, mkl, torch; NAME=PYTHON: in a process of its own, with the Python that has it.",
        ),
    ] = "",
    seconds: Annotated[
        float, typer.Option(help="Seconds for each batch and number of threads: times, and again throughput.")
    ] = 1.0,
    callers: Annotated[
        int | None, typer.Option(help="Threads that call at once for the throughput; default: cores; 0: none.")
    ] = None,
    input_shape: InputShapes = None,
    dim: Dims = None,
    inputs: InputFile = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.json", help="Write passes and nodes by time, for ui.perfetto.dev.", callback=new_file
        ),
    ] = None,
    cpu: Cpu = CpuLevel.HOST,  # noqa: ARG001 - its callback does it
    report: ReportPath = None,
) -> None:
    """Print a table to paste: times beside onnxruntime's.

    Engines run in turn. The table is markdown: p50 and p99 of a call, how many times as fast as onnxruntime it is
    (by medians, by the fastest calls where others disturbed), calls a second while several threads call at once.
    `session` is redpebble.session, which runs every model; `native` is redpebble.compile, without onnxruntime, which
    runs models that are covered from end to end.

    --trace writes the passes of the compiler, and the nodes of a session and of onnxruntime over some calls of the
    first batch, beside each other.

    A folder of onnxruntime-genai: tokens a second of prompts and of steps behind 128 and 1024 tokens. --against takes
    other folders, genai, and int8 and int4, which onnxruntime's quantizers make.
    """
    if model.is_dir():
        from .decoders.decoder_bench import DecoderBenchPlan, bench_folder

        bench_folder(model, DecoderBenchPlan(words(against), numbers(threads), seconds), report)
        return
    from ..verification.feeds import InputChoice
    from ..verification.measuring import Budget
    from .benching.engines.engines import installed_peers
    from .benching.model_bench import OURS, BenchPlan, bench_and_print

    engines = (*OURS, *(words(against) or installed_peers()))
    choice = InputChoice(shapes(input_shape), sizes(dim), inputs)
    count = usable_threads() if callers is None else callers
    plan = BenchPlan(numbers(batch), numbers(threads), engines, Budget(seconds), choice, count)
    bench_and_print(model, plan, report, trace)
