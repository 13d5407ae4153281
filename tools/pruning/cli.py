"""The command line of `prune`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..cli_options import ModelPath, Seed, new_model, new_report

Precision = Literal["f32", "int8"]


def prune(
    model: ModelPath,
    output: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The pruned model.", callback=new_model)],
    data: Annotated[Path, typer.Option(metavar="DATA.npz", help="Some hundred inputs, an array for each by its name.")],
    speedup: Annotated[float | None, typer.Option(metavar="X", help="Goal: X times as fast as now.")] = None,
    time: Annotated[str | None, typer.Option(metavar="3ms", help="Goal: time of a call, in ms or us.")] = None,
    sparsity: Annotated[float | None, typer.Option(metavar="S", help="Goal: zeros in each layer, 0 to 1.")] = None,
    loss: Annotated[
        float | None, typer.Option(metavar="L", help="Goal: lost share of the outputs' variance, 0 to 1.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(help="Rows of a call: samples or tokens, 128 by default; images, 1 by default."),
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads that the model will run on.")] = 1,
    structure: Annotated[
        str,
        typer.Option(help="Where zeros may be: equal, free, n:32, 2:4, 64:2:8, grouped:2:4:8, rows:4, blocks:4."),
    ] = "equal",
    method: Annotated[str, typer.Option(help="admm, sparsegpt, obs, wanda or magnitude.")] = "admm",
    keep: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="A layer that stays dense; may be given again.")
    ] = None,
    finetune: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time to train what is left, where redpebble finetune can.")
    ] = 0.0,
    stages: Annotated[int, typer.Option(help="Prunings during training, each sparser.")] = 1,
    labels: Annotated[
        str | None, typer.Option(metavar="NAME", help="The array of the data that --finetune trains for.")
    ] = None,
    precision: Annotated[Precision, typer.Option(help="Numbers that sparse layers compute with.")] = "f32",
    seed: Seed = 0,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page if it ends on .html, with every method compared; JSON else.",
            callback=new_report,
        ),
    ] = None,
) -> None:
    """Make a dense model sparse, within a time or a loss.

    One of --speedup, --time, --sparsity and --loss is the goal, or a structure that has one density, such as 64:2:8.
    Layers are pruned one after the other, each refitted to the outputs that the dense model has on the data; where the
    goal is a time or a loss, each gets the density at which the model loses least. Times are onnxruntime's, for the
    given rows and threads. The loss has an interval: samples that weights were not fitted to tell what others lose.
    """
    from ...pruning.options import Goal, PruneOptions
    from .command import PruneFiles, milliseconds, prune_and_print

    limit = None if time is None else milliseconds(time)
    goal = Goal.of({"speedup": speedup, "time": limit, "sparsity": sparsity, "loss": loss}, structure, "--")
    compares = report is not None and report.suffix == ".html"
    options = PruneOptions(
        goal, rows, threads, structure, method, tuple(keep or ()), seed, finetune, stages, None, precision, compares
    )
    prune_and_print(PruneFiles(model, data, output, report, labels), options)
