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
    output: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The trained model, or the folder of its parts.")],
    data: Annotated[
        Path,
        typer.Option(metavar="DATA", help="Samples by input name: an .npz, or a folder of .npy, which are mapped."),
    ],
    labels: Annotated[str, typer.Option(metavar="NAME", help="The array of DATA with the labels.")] = "",
    teacher: Annotated[
        Path | None, typer.Option(metavar="DENSE.onnx", help="The teacher, whose outputs are the targets.")
    ] = None,
    loss: Annotated[Loss | None, typer.Option(help="Default: mse, or cross-entropy for classes.")] = None,
    optimizer: Annotated[Optimizer, typer.Option(help="The rule for steps.")] = "adam",
    epochs: Annotated[int, typer.Option(help="Passes over all samples.")] = 10,
    batch: Annotated[int, typer.Option(help="Samples of a step.")] = 256,
    rate: Annotated[float, typer.Option("--lr", help="Peak learning rate.")] = 1e-3,
    schedule: Annotated[Schedule, typer.Option(help="Schedule of the learning rate.")] = "cosine",
    warm_up: Annotated[int, typer.Option(metavar="STEPS", help="Warm-up steps.")] = 0,
    patience: Annotated[int, typer.Option(metavar="EPOCHS", help="Epochs without gain before a stop; 0: never.")] = 0,
    validate: Annotated[Path | None, typer.Option(metavar="V", help="Validation samples, as DATA.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of a step.")] = 1,
    replicas: Annotated[
        bool, typer.Option("--replicas", help="Train a replica on each rank of mpiexec, on its share of each batch.")
    ] = False,
    exchange: Annotated[
        Exchange,
        typer.Option(
            help="What replicas exchange: gradients, gradients or directions in --bits, or signs of Lion's steps."
        ),
    ] = "f32",
    sync: Annotated[
        int, typer.Option(metavar="STEPS", help="Steps after which replicas average momentum; 0: never.")
    ] = 0,
    sync_of: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Average this initializer's momentum alone; may be given again."),
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
