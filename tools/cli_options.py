"""Options that several commands have."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .json_reports import STANDARD_OUTPUT
from .option_texts import numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..lowering.cpu_target import CpuTarget


def new_report(path: Path | None) -> Path | None:
    """Return the path of a report, checked by `new_file`, or standard output."""
    return printed_alone(path) if path == STANDARD_OUTPUT else new_file(path)


def printed_alone(path: Path | None) -> Path | None:
    """Return the path of a report; a printed report silences all other output."""
    if path == STANDARD_OUTPUT:
        from .console.console import console

        console.quiet = True
    return path


def new_file(path: Path | None) -> Path | None:
    """Return the path of a file to write, checked before any work is done.

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
        raise ValueError(f"expected a file to write that ends in .onnx, got {path}")
    return path


def new_model_if_any(path: Path | None) -> Path | None:
    """Return the path of a model to write, as `new_model`, or None."""
    return None if path is None else new_model(path)


def new_folder(path: Path) -> Path:
    """Return the path of a folder to write, which may exist.

    Raises:
        OSError: the folder that it stands in does not exist, or it is a file.
    """
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"cannot write {path}: expected a folder, got a file")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: {path.parent} is no folder")
    return path


def stored_model(path: Path) -> Path:
    """Return the path of a model to read: a missing file is refused before the compiler is loaded.

    Raises:
        ValueError: there is no such file.
    """
    if not path.exists():
        raise ValueError(f"{str(path)!r} cannot be read: no such file or directory")
    return path


def stated_numbers(text: str) -> str:
    """Return the text of a list of numbers.

    Raises:
        ValueError: it is none.
    """
    numbers(text)
    return text


ModelPath = Annotated[Path, typer.Argument(metavar="IN.onnx", help="The model.", callback=stored_model)]
Batches = Annotated[str, typer.Option("--batch", metavar="N,N", help="Batch sizes.", callback=stated_numbers)]
Rtol = Annotated[float, typer.Option(help="Relative tolerance.")]
Atol = Annotated[float, typer.Option(help="Absolute tolerance, times the median size of values above 1.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
ReportPath = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Write the result as JSON, too; --json shows it.", callback=new_report
    ),
]
InputShapes = Annotated[
    list[str] | None,
    typer.Option("--input-shape", metavar="NAME:N,N", help="Shape of an input, instead of one made from the batch."),
]


Dims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=N", help="Size of a dimension; may be given again.")
]
ImageSizes = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        metavar="NAME=N",
        help="Size of an axis in all calls, as of images; may be given again.",
    ),
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
ChoicesFile = Annotated[
    Path | None, typer.Option("--choices", metavar="FILE.json", help="Kernels and passes chosen in explain --serve.")
]
DropDeadRows = Annotated[bool, typer.Option(help="Drop rows of the batch that have become zero.")]
ReorderSeconds = Annotated[float, typer.Option(metavar="S", help="Time to anneal the order of neurons.")]
ScheduleSeconds = Annotated[float, typer.Option(metavar="S", help="Time to anneal which layers run together.")]


class CpuLevel(StrEnum):
    """The CPU that code is for: this machine, a level of x86-64, or a CPU of 64-bit ARM."""

    HOST = "host"
    GENERIC = "generic"
    AVX2 = "avx2"
    AVXVNNI = "avxvnni"
    AVX512 = "avx512"
    AVX512VNNI = "avx512vnni"
    ZEN4 = "zen4"
    GENERIC_ARM64 = "generic-arm64"
    CORTEX_A72 = "cortex-a72"
    CORTEX_A76 = "cortex-a76"
    NEOVERSE_N1 = "neoverse-n1"
    NEOVERSE_N2 = "neoverse-n2"
    NEOVERSE_V1 = "neoverse-v1"
    NEOVERSE_V2 = "neoverse-v2"
    APPLE_M1 = "apple-m1"
    APPLE_M2 = "apple-m2"

    @property
    def target(self) -> "CpuTarget | None":
        """The CPU, None for this machine's."""
        from ..lowering.cpu_target import ARM_CPUS
        from ..ort.custom_ops.library import level_target

        if self is CpuLevel.HOST:
            return None
        return ARM_CPUS[self.value] if self.value in ARM_CPUS else level_target(self.value)

    @property
    def elsewhere(self) -> "CpuTarget | None":
        """The CPU where it is of another architecture than this machine's: there is no code for it in this process."""
        from ..lowering.architectures import host_name

        target = self.target
        return None if target is None or target.architecture_name == host_name() else target


def on_cpu(context: typer.Context, level: CpuLevel) -> CpuLevel:
    """Let the command make and choose code for a level of CPUs.

    Raises:
        ValueError: this machine cannot run such code.
    """
    if not context.resilient_parsing and (target := level.target) is not None:
        from ..runtime.jit import assumed_cpu

        context.with_resource(assumed_cpu(target))
    return level


def for_cpu(context: typer.Context, level: CpuLevel) -> CpuLevel:
    """Let the command make and choose code for a level of CPUs, if they are of this machine's architecture.

    Raises:
        ValueError: they are, and this machine cannot run such code.
    """
    return on_cpu(context, level) if level.elsewhere is None else level


Cpu = Annotated[
    CpuLevel,
    typer.Option(
        "--cpu", help="Test our code for such a CPU on this machine; onnxruntime's is not limited.", callback=on_cpu
    ),
]


OptimizeCpu = Annotated[
    CpuLevel,
    typer.Option("--cpu", help="Optimize for such a CPU; with --library also one of ARM.", callback=for_cpu),
]


class OptimizeTarget(StrEnum):
    """The operators that `optimize` writes: standard ones, or our nodes with functions of standard ones."""

    PORTABLE = "portable"
    ORT = "ort"


class Precision(StrEnum):
    """The precision of sparse layers."""

    FLOAT32 = "float32"
    INT8 = "int8"
    BFLOAT16 = "bf16"


PrecisionChoice = Annotated[
    Precision,
    typer.Option(help="Precision of sparse layers: int8 needs --data, bf16 a CPU with avx512_bf16, or bf16 on ARM."),
]
Samples = Annotated[
    Path | None, typer.Option(metavar="SAMPLES.npz", help="Samples of the inputs, an array for each by name.")
]


def some_runs(runs: int) -> int:
    """Return a number of runs that compare something.

    Raises:
        ValueError: it is less than 1.
    """
    if runs < 1:
        raise ValueError(f"runs to compare: expected 1 or more, got {runs}")
    return runs


def samples_of(precision: Precision, data: Path | None) -> "dict[str, NDArray[Any]] | None":
    """Return the samples in a file, None where none are needed.

    Raises:
        ValueError: int8 comes without samples, float32 with some, or the file cannot be understood.
    """
    from ..verification.feeds import arrays_of

    if precision is Precision.INT8 and data is None:
        raise ValueError("expected samples of --data for --precision int8, got none")
    if precision is Precision.FLOAT32 and data is not None:
        raise ValueError("expected --precision int8 or bf16 with --data, got float32, which needs no samples")
    return None if data is None else arrays_of(data)
