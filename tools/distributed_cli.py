"""The command line of networks on several machines: `partition` and `run`."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .cli_options import ReportPath, new_file, printed_alone
from .option_texts import numbers

if TYPE_CHECKING:
    from ..distributed.run.run_parts import RunSummary


class Plan(StrEnum):
    """The axis along which a network is split: neurons, samples, layers or nodes; auto takes the best plan."""

    AUTO = "auto"
    ROWS = "rows"
    BATCH = "batch"
    LAYERS = "layers"
    NODES = "nodes"


def partition(
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model.")],
    parts: Annotated[int, typer.Option("-p", "--parts", metavar="P", help="Parts, one for each rank.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PARTS", help="The folder of parts to write.")],
    plan: Annotated[Plan, typer.Option(help="The axis to split.")] = Plan.AUTO,
    imbalance: Annotated[
        float, typer.Option(help="Connections of a layer in its fullest part over the mean, minus 1.")
    ] = 0.03,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    memory: Annotated[
        str | None, typer.Option("--memory-per-machine", metavar="BYTES", help="Room for a part, such as 4GiB.")
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", help="Samples of a usual run, for the planner.")] = 1024,
    measure: Annotated[
        bool, typer.Option("--measure", help="Under mpiexec: measure messages between its first two ranks.")
    ] = False,
    report: ReportPath = None,
) -> None:
    """Split a model into parts, one for each rank of mpiexec."""
    from ..distributed.plans.plans import PlanRequest, parse_bytes
    from .distributed_commands import PartsFolder, partition_model

    room = None if memory is None else parse_bytes(memory)
    request = PlanRequest(parts, plan.value, imbalance, seed, room, batch)
    partition_model(model, PartsFolder(output, report), request, measure=measure)


def simulate(
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model.")],
    parts: Annotated[str, typer.Option("-p", "--parts", metavar="P,P", help="Numbers of parts.")] = "1,2,4,8,16,32",
    batch: Annotated[int, typer.Option(metavar="N", help="Samples of a run.")] = 1024,
    imbalance: Annotated[
        float, typer.Option(help="Connections of a layer in its fullest part over the mean, minus 1.")
    ] = 0.03,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    train_bits: Annotated[
        int | None,
        typer.Option(metavar="N", help="Predict a step of training; replicas exchange N bits a value, 32 or less."),
    ] = None,
    gigabits: Annotated[float, typer.Option(metavar="G", help="Rate of a machine's link, Gbit/s.")] = 10.0,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a plot: .png, .svg or .pdf.", callback=new_file)
    ] = None,
    report: ReportPath = None,
) -> None:
    """Predict the time of each plan on many machines.

    Partitions are real, messages come from a model.
    """
    from ..distributed.plans.cluster import Machine
    from ..distributed.plans.plans import PlanRequest
    from .distributed_commands import ScalingOutput, simulate_model

    machine = Machine(bandwidth=gigabits * 1e9 / 8)
    requests = [
        PlanRequest(count, "auto", imbalance, seed, None, batch, train_bits, machine) for count in numbers(parts)
    ]
    simulate_model(model, requests, ScalingOutput(plot, report))


def run(
    parts: Annotated[Path, typer.Argument(metavar="PARTS", help="A folder of parts, which every rank can read.")],
    inputs: Annotated[list[str], typer.Option("--input", metavar="[NAME=]X.npy", help="An input, float32.")],
    outputs: Annotated[list[str], typer.Option("--output", metavar="[NAME=]Y.npy", help="The file of an output.")],
    threads: Annotated[int, typer.Option(help="Threads of each rank.")] = 1,
    batch_tile: Annotated[int | None, typer.Option(metavar="B", help="Samples that travel together.")] = None,
    patience: Annotated[float, typer.Option(metavar="S", help="Seconds after which a silent rank is dead.")] = 10.0,
    shared_memory: Annotated[
        bool, typer.Option(help="Whether ranks of one machine send through shared memory.")
    ] = True,
    report: Annotated[
        Path | None,
        # all ranks come by here: the one that writes the file says what is wrong with it
        typer.Option(
            "--report", metavar="FILE", help="Write time and bytes sent of each rank as JSON.", callback=printed_alone
        ),
    ] = None,
) -> None:
    """Run parts, on as many ranks.

    mpiexec -n P redpebble run PARTS --input X.npy --output Y.npy

    Every rank reads and writes its slices of the files. When a rank fails, hangs or dies, all end,
    with exit code 2, or 128 + N when signal N asked it to.
    """
    from ..distributed.run.partitioned_network import RunOptions
    from ..distributed.run.run_parts import RunRequest, run_parts

    options = RunOptions(threads, batch_tile, shared_memory=shared_memory)
    request = RunRequest(parts, inputs, outputs, options, patience, partial(_show_run, report=report))
    raise typer.Exit(run_parts(request))


def _show_run(run: "RunSummary", report: Path | None) -> None:
    from .console.console import console
    from .json_reports import write_report

    line = f"{run.kind} on {len(run.ranks)} ranks: {run.seconds:.3f} s, {run.bytes_sent:,} bytes sent"
    console.print(line, highlight=False, markup=False, soft_wrap=True)
    write_report(report, "run", {"plan": dict(run.plan), "ranks": list(run.ranks)})
