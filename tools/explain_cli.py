"""The command line of data movement: `explain` and `schedule`."""

from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer

from .cli_options import (
    Cpu,
    CpuLevel,
    DropDeadRows,
    Elide,
    ImageSizes,
    ModelPath,
    PrintAfter,
    PrintAfterAll,
    ReorderSeconds,
    ReportPath,
    ScheduleSeconds,
    Seed,
    StopAfter,
    new_file,
    new_report,
)

Proposals = Annotated[
    int | None,
    typer.Option(metavar="N", help="Search N proposals instead of a time: the same seed then finds the same order."),
]


class EvictionPolicy(StrEnum):
    """Eviction from a full memory, see `theory.pebbling.machine.Policy`."""

    MIN = "min"
    LRU = "lru"
    RR = "rr"
    WRITEBACK = "writeback"


def explain(
    models: Annotated[list[Path], typer.Argument(metavar="IN.onnx", help="The model; several for a sweep.")],
    memory: Annotated[
        str,
        typer.Option(
            metavar="M,M",
            help="Fast memory in rows, or in bytes such as 48KiB, which is the default. Several show a sweep.",
        ),
    ] = "",
    batch_tile: Annotated[int, typer.Option(metavar="B", help="Columns of a row: samples that run together.")] = 1,
    seconds: Annotated[float, typer.Option(metavar="S", help="Time to search for an order, for each memory.")] = 2.0,
    proposals: Proposals = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Write the result, too: as .json or as a page, .html.", callback=new_report
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw a sweep over memories: a .png, .svg or .pdf.", callback=new_file),
    ] = None,
    parts: Annotated[
        int | None, typer.Option("-p", "--parts", metavar="P", help="Show the messages between P parts.", min=1)
    ] = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve a page here on which passes and kernels are chosen and measured.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of that page, 0 for any that is free.", min=0, max=65535)] = 0,
    reorder_seconds: ReorderSeconds = 0.0,
    schedule_seconds: ScheduleSeconds = 0.0,
    drop_dead_rows: DropDeadRows = False,
    size: ImageSizes = None,
    cpu: Cpu = CpuLevel.HOST,  # noqa: ARG001 - its callback does it
    seed: Seed = 0,
    print_after_all: PrintAfterAll = False,
    print_after: PrintAfter = None,
    stop_after: StopAfter = "",
    elide: Elide = None,
) -> None:
    """Show what bounds a model: its layers and its data movement.

    Shows the transfers of several orders of the connections, and a lower bound for any order.

    With several memories, several models or --plot it shows a sweep: transfers and bounds for each memory. Ctrl-C ends
    a search and shows the best orders so far.

    Of a folder of onnxruntime-genai it shows the bytes that a token reads, beside the least, and the roof of memory.

    With --serve it serves a page on which passes are left out and kernels chosen and measured, until Ctrl-C.
    """
    if len(models) == 1 and models[0].is_dir():
        from .decoders.genai_folder import read_folder
        from .explain.decoder_bytes import explain_decoder

        explain_decoder(read_folder(models[0]).model, report)
        return
    if serve:
        from .explain.serving.server import serve_and_print

        serve_and_print(models, port)
        return
    from ..options import Options
    from ..theory.partition.search import PartitionRequest
    from .explain.explanation import ExplainRequest
    from .explain.memory_sizes import memory_sizes
    from .explain.saved_orders import SearchBudget
    from .explain_commands import ExplainOutput, SweepOutput, explain_and_print, sweep_and_print
    from .inspection import Inspection
    from .option_texts import sizes

    split = None if parts is None else PartitionRequest(parts, seed=seed)
    budget, memories = SearchBudget(seconds, proposals, seed), memory_sizes(memory, batch_tile)
    if len(models) > 1 or len(memories) > 1 or plot is not None:
        sweep_and_print(models, memories, batch_tile, budget, SweepOutput(report, plot))
        return
    (model,) = models
    options = Options(drop_dead_rows=drop_dead_rows, reorder_seconds=reorder_seconds, schedule_seconds=schedule_seconds)
    inspection = Inspection(print_after_all, tuple(print_after or ()), stop_after, elide)
    output = ExplainOutput(report, inspection, sizes(size))
    rows = memories[0] if memories else ExplainRequest.default_memory(batch_tile)
    explain_and_print(model, ExplainRequest(rows, batch_tile, budget), options, output)
    if split is not None and not stop_after:
        from .explain.partition import explain_partition_and_print

        explain_partition_and_print(model, split)


def schedule(
    model: ModelPath,
    memory: Annotated[int, typer.Option(metavar="M", help="Values, or rows of a batch tile, that fast memory holds.")],
    save: Annotated[Path, typer.Option(metavar="ORDER.npz", help="The file for the order.", callback=new_file)],
    policy: Annotated[
        EvictionPolicy,
        typer.Option(
            help="What leaves a full memory: the value used again last, the least recently used one, the one in turn "
            "(round robin), or the one used again last with writes weighed."
        ),
    ] = EvictionPolicy.MIN,
    seconds: Annotated[float, typer.Option(metavar="S", help="Time for all, reading included.")] = 5.0,
    proposals: Proposals = None,
    seed: Seed = 0,
    report: ReportPath = None,
) -> None:
    """Search an order of connections that moves few values.

    The best one is saved; Ctrl-C saves the best one so far.
    """
    began = monotonic()
    from .explain.saved_orders import ScheduleRequest, SearchBudget
    from .explain_commands import schedule_and_print

    request = ScheduleRequest(memory, policy.value, SearchBudget(seconds, proposals, seed))
    schedule_and_print(model, request, save, report, began)
