"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer


def new_file(path: Path | None) -> Path | None:
    """Return the path of a file to write, which can be there: it is looked at before any work is done.

    Raises:
        OSError: its folder does not exist, or it is a folder itself.
    """
    if path is not None and path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if path is not None and not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: {path.parent} is no folder")
    return path


def new_model(path: Path) -> Path:
    """Return the path of a model to write.

    Raises:
        OSError: its folder does not exist, or it is a folder itself.
        ValueError: its name does not end in .onnx.
    """
    new_file(path)
    if path.suffix != ".onnx":
        raise ValueError(f"cannot write {path}, accepted is a file that ends in .onnx")
    return path


ModelPath = Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model.")]
Batches = Annotated[str, typer.Option("--batch", metavar="N,N", help="Batch sizes.")]
Rtol = Annotated[float, typer.Option(help="Relative tolerance.")]
Atol = Annotated[float, typer.Option(help="Absolute tolerance.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
ReportPath = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write the result as JSON, too.", callback=new_file),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option("--input-shape", metavar="NAME:N,N", help="Shape of an input, instead of one made from the batch."),
]


Dims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=N", help="Size of a dimension; may be given again.")
]
InputFile = Annotated[
    Path | None, typer.Option("--inputs", metavar="FEEDS.npz", help="Inputs by name, instead of random ones.")
]


PrintAfterAll = Annotated[bool, typer.Option("--print-after-all", help="Show the IR after each pass, on stderr.")]
PrintAfter = Annotated[
    list[str] | None, typer.Option(metavar="PASS", help="Show the IR after this pass, on stderr; may be given again.")
]
StopAfter = Annotated[str, typer.Option(metavar="STAGE", help="Print the IR after this stage, and stop.")]
Elide = Annotated[int | None, typer.Option(metavar="N", help="Leave out constants of more than N elements there.")]
SkipPasses = Annotated[str, typer.Option(metavar="A,B", help="Passes to leave out.")]
DropDeadRows = Annotated[bool, typer.Option(help="Drop rows of the batch that have become zeros on the way.")]
ReorderSeconds = Annotated[float, typer.Option(metavar="S", help="Time to anneal the order of neurons.")]
ScheduleSeconds = Annotated[float, typer.Option(metavar="S", help="Time to anneal which layers run together.")]
