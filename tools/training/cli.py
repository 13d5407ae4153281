"""The command line of `finetune`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..cli_options import Seed, new_model, new_report

Loss = Literal["mse", "cross-entropy", "crps", "distill"]
Optimizer = Literal["sgd", "adam", "lion"]
Schedule = Literal["constant", "cosine"]
Exchange = Literal["f32", "bits", "signs", "directions"]


def finetune(
    model: Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model, or a folder of its parts.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUT.onnx", help="Where the trained model goes, or the folder of its parts.")
    ],
    data: Annotated[
        Path,
        typer.Option(metavar="DATA", help="Samples by input name: an .npz, or a folder of .npy, which are mapped."),
    ],
    labels: Annotated[str, typer.Option(metavar="NAME", help="The array of the data that is wanted.")] = "",
    teacher: Annotated[
        Path | None, typer.Option(metavar="DENSE.onnx", help="The model whose outputs are wanted.")
    ] = None,
    loss: Annotated[
        Loss | None, typer.Option(help="By itself mse, and cross-entropy where labels are classes.")
    ] = None,
    optimizer: Annotated[Optimizer, typer.Option(help="The rule for steps.")] = "adam",
    epochs: Annotated[int, typer.Option(help="Times that all samples are taken.")] = 10,
    batch: Annotated[int, typer.Option(help="Samples of a step.")] = 256,
    rate: Annotated[float, typer.Option("--lr", help="Learning rate, the largest one.")] = 1e-3,
    schedule: Annotated[Schedule, typer.Option(help="The way the rate goes.")] = "cosine",
    warm_up: Annotated[int, typer.Option(metavar="STEPS", help="Steps in which the rate rises.")] = 0,
    patience: Annotated[int, typer.Option(metavar="EPOCHS", help="Epochs without gain that end it; 0: none do.")] = 0,
    validate: Annotated[
        Path | None, typer.Option(metavar="V", help="Samples by which the best epoch is known, as DATA.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads of a step.")] = 1,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Train a replica on each rank of mpiexec, on its share of each batch.")
    ] = False,
    exchange: Annotated[
        Exchange,
        typer.Option(
            help="What replicas send: gradients, these in --bits, signs of Lion's steps, or, in --bits, what has them."
        ),
    ] = "f32",
    sync: Annotated[
        int, typer.Option(metavar="STEPS", help="Steps after which replicas average momentum; 0: never.")
    ] = 0,
    sync_of: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="An initializer of which they do, not of all; may be given again."),
    ] = None,
    bits: Annotated[int, typer.Option(help="Bits of a value with --exchange bits and directions.")] = 4,
    seed: Seed = 0,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page if it ends on .html; JSON else.", callback=new_report),
    ] = None,
) -> None:
    """Train what a sparse network has left; zeros stay zeros.

    One of --labels and --teacher says what outputs are to become. Networks of linear layers are trained, with all that
    stands between them but convolutions and attention. The epoch that loses least on --validate, or else on the data,
    is kept; an interrupt ends training, and writes the best one so far.

    mpiexec -n P redpebble finetune ... --replicas trains on P shares of each batch, on as many ranks.

    mpiexec -n P redpebble finetune PARTS OUT ... trains P parts where they lie; 2P ranks, two replicas of each.
    """
    from .command import FinetuneFiles, Rates, finetune_and_print

    steps = (optimizer, epochs, batch, rate, schedule, warm_up, patience)
    rates = Rates(*steps, seed, threads, exchange, sync, tuple(sync_of or ()), bits)
    files = FinetuneFiles(model, data, output, validate, teacher, labels, report)
    if model.is_dir():
        from .parts_command import finetune_parts_and_print

        raise typer.Exit(finetune_parts_and_print(files, loss, rates))
    new_model(output)
    finetune_and_print(files, loss, rates, replicated=replicas)
