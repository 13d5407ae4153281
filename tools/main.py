"""The command line.

Exit codes: 0 done, 1 a comparison failed, 2 bad usage or unsupported input, 128 + N ended by signal N, 70 a defect of
ours, with a traceback.
"""

import logging
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Literal, NoReturn, Protocol, runtime_checkable

import typer

from ..distributed.run.launcher import end_ranks
from ..foundation.choices import Choices
from ..foundation.memory_limit import available_memory, limited_memory
from .cli_options import (
    Atol,
    Batches,
    ChoicesFile,
    Cpu,
    CpuLevel,
    Dims,
    DropDeadRows,
    Elide,
    ImageSizes,
    InputFile,
    InputShapes,
    ModelPath,
    OptimizeCpu,
    OptimizeTarget,
    Precision,
    PrecisionChoice,
    PrintAfter,
    PrintAfterAll,
    ReorderSeconds,
    ReportPath,
    Rtol,
    Samples,
    ScheduleSeconds,
    Seed,
    SkipPasses,
    StopAfter,
    new_file,
    new_folder,
    new_model,
    new_report,
    samples_of,
)
from .comparing_cli import bench, check
from .distributed_cli import partition, run, simulate
from .explain_cli import explain, schedule
from .json_reports import STANDARD_OUTPUT
from .option_texts import numbers, shapes, sizes, words

# The command line of `finetune`.


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
    from .training_commands import FinetuneFiles, Rates, finetune_and_print

    steps = (optimizer, epochs, batch, rate, schedule, warm_up, patience)
    rates = Rates(*steps, seed, threads, exchange, sync, tuple(sync_of or ()), bits)
    files = FinetuneFiles(model, data, output, validate, teacher, labels, report)
    if model.is_dir():
        from .training_parts_commands import finetune_parts_and_print

        raise typer.Exit(finetune_parts_and_print(files, loss, rates))
    new_model(output)
    finetune_and_print(files, loss, rates, replicated=replicas)


# The command line of `prune`.


PrunedPrecision = Literal["f32", "int8", "int4"]


def prune(
    model: ModelPath,
    output: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The pruned model, or a folder.")],
    data: Annotated[
        Path,
        typer.Option(metavar="DATA.npz", help="Some hundred inputs, an array for each by its name; a folder's text."),
    ],
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
        float, typer.Option(metavar="SECONDS", help="Time to train what is left; a folder's decoder by torch.")
    ] = 0.0,
    stages: Annotated[int, typer.Option(help="Prunings during training, each sparser.")] = 1,
    labels: Annotated[
        str | None, typer.Option(metavar="NAME", help="The array of the data that --finetune and --metric read.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="Quality beside: quality, accuracy, recall@k, perplexity or cer.")
    ] = None,
    validate: Annotated[
        Path | None, typer.Option(metavar="V.npz", help="Samples that --metric is of; default: the data.")
    ] = None,
    precision: Annotated[PrunedPrecision, typer.Option(help="Numbers that sparse layers compute with.")] = "f32",
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

    A folder of onnxruntime-genai or transformers becomes one of onnxruntime-genai: its decoder is pruned for a text
    file, or a folder of them, and its perplexity is told on files, or an end of the text, that are held out.
    """
    output = new_folder(output) if model.is_dir() else new_model(output)
    from ..pruning.options import Goal, PruneOptions
    from .decoders.text_pruning import prune_folder
    from .pruning_commands import PruneFiles, milliseconds, prune_and_print

    limit = None if time is None else milliseconds(time)
    goal = Goal.of({"speedup": speedup, "time": limit, "sparsity": sparsity, "loss": loss}, structure, "--")
    compares = report is not None and report.suffix == ".html"
    options = PruneOptions(
        goal, rows, threads, structure, method, tuple(keep or ()), seed, finetune, stages, None, precision, compares
    )
    run = prune_folder if model.is_dir() else prune_and_print
    run(PruneFiles(model, data, output, report, labels, metric, validate), options)


# The command line of `distil`.


def distil(
    model: ModelPath,
    output: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The trained model.", callback=new_model)],
    data: Annotated[Path, typer.Option(metavar="DATA.npz", help="Samples, an array for each input by its name.")],
    teacher: Annotated[Path | None, typer.Option(metavar="DENSE.onnx", help="The model to learn from.")] = None,
    labels: Annotated[str, typer.Option(metavar="NAME", help="The array of the data with the labels.")] = "",
    validate: Annotated[
        Path | None, typer.Option(metavar="V.npz", help="Other samples to measure on; default: an eighth of the data.")
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:W]", help="embedding, similarity, hidden, logits, outputs or labels, and its weight."
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="quality, accuracy, recall@k, perplexity or cer.")] = "quality",
    seconds: Annotated[float | None, typer.Option(help="Time to train.")] = None,
    steps: Annotated[int | None, typer.Option(help="Batches to train on.")] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the data where neither is said.")] = 3,
    batch: Annotated[int, typer.Option(help="Samples of a step.")] = 32,
    rate: Annotated[float, typer.Option("--lr", help="Peak learning rate.")] = 1e-3,
    patience: Annotated[int, typer.Option(help="Measurements without gain before a stop; 0: never.")] = 5,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where a training is kept, and goes on from.")
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Rows of a call that the speed is predicted for.")] = None,
    threads: Annotated[int, typer.Option(help="Threads to train on.")] = 1,
    seed: Seed = 0,
    report: ReportPath = None,
) -> None:
    """Train what any sparse model has left by its dense model.

    Zeros stay zeros, and quantized weights keep their scales. Needs torch; a GPU is used where torch sees one. The
    weights that are best on samples that were held out are kept, and onnxruntime measures them.
    """
    from .distil_commands import DistilFiles, DistilNumbers, distil_and_print

    files = DistilFiles(model, data, output, teacher, validate, labels or None, checkpoint, report)
    numbers = DistilNumbers(metric, steps, seconds, epochs, batch, rate, patience or None, rows, threads, seed)
    distil_and_print(files, loss or [], numbers)


# The commands about what is kept on disk: `redpebble cache show`, `redpebble cache clean` and `redpebble tune`.


cache_app = typer.Typer(no_args_is_help=True, help="Show or empty the cache of compiled models.")


@cache_app.command()
def show(report: ReportPath = None) -> None:
    """Show the folder, its files by kind, and the limit.

    REDPEBBLE_CACHE names another folder, REDPEBBLE_CACHE_LIMIT another limit, such as 500MB. Files that were used
    longest ago go when the limit is reached.
    """
    from .cache_commands import show_cache

    show_cache(report)


@cache_app.command()
def clean(report: ReportPath = None) -> None:
    """Remove every file that can be made again.

    What `redpebble tune` measured stays; `redpebble tune --reset` removes it.
    """
    from .cache_commands import clean_cache

    clean_cache(report)


def tune(
    model: Annotated[Path | None, typer.Argument(metavar="[IN.onnx]", help="Measure its kernels, too.")] = None,
    seconds: Annotated[float, typer.Option(help="Measuring time for all kernels of the model.")] = 5.0,
    show: Annotated[bool, typer.Option("--show", help="Show earlier measurements, and measure nothing.")] = False,
    reset: Annotated[bool, typer.Option("--reset", help="Delete earlier measurements, and measure nothing.")] = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write the measurements to a file.", callback=new_file),
    ] = None,
    take: Annotated[Path | None, typer.Option("--import", metavar="FILE", help="Add those of a file.")] = None,
    cpu: Cpu = CpuLevel.HOST,  # noqa: ARG001 - its callback does it
    report: ReportPath = None,
) -> None:
    """Measure this machine, and the kernels of a model.

    Times are remembered, and the faster kernels chosen from then on. What is measured serves every later compilation:
    it corrects what is predicted of layers that are alike. The layers of the model themselves are known to
    compile(..., tune=True).
    """
    if export is not None or take is not None:
        from .cache_commands import exchange_measured

        exchange_measured(export, take, report)
        return
    if show or reset:
        from .cache_commands import forget_measured, show_measured

        if show:
            show_measured(report)
        else:
            forget_measured(report)
        return
    from .commands import tune_and_print

    tune_and_print(model, seconds, report)


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


OWN_FAULT: Final = 70
"""Exit code of a defect of ours: the system's EX_SOFTWARE."""

HELP: Final = "Usage:"
"""The beginning of what is said where a command is missing, in place of an error."""

LEAST: Final = "least.onnx"
"""The file of `check --bisect` where it has no name."""

ANYWHERE: Final = ("--verbose", "-v", "--quiet", "-q")
"""Options of all commands, before or behind their names."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        print(f"redpebble {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show details, and log what is done on standard error.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no results, and only errors.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Show the result as JSON, and nothing else.")] = False,  # noqa: ARG001 - `_ordered` does it
) -> None:
    """Make pruned ONNX models fast on CPUs by moving less data."""
    if verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
        logging.getLogger("redpebble").setLevel(logging.INFO)
    if quiet:
        from .console.console import console, progress_console

        console.quiet = progress_console.quiet = True


@app.command()
def optimize(
    model: ModelPath,
    output: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="Where the optimized model goes, or a folder.")],
    target: Annotated[
        OptimizeTarget | None,
        typer.Option(help="Standard operators alone, or sparse layers as nodes with functions; ort where it pays."),
    ] = None,
    library: Annotated[
        bool, typer.Option("--library", help="Write native code for onnxruntime beside the model, as OUT.so.")
    ] = False,
    batch: Batches = "1,7",
    check_runs: Annotated[int, typer.Option("--check", metavar="N", help="Compare with the original N times.")] = 0,
    rtol: Rtol = 1e-4,
    atol: Atol = 1e-5,
    rows: Annotated[
        int, typer.Option(help="Rows of a call, where known: sparse layers are chosen for this number.")
    ] = 0,
    precision: PrecisionChoice = Precision.FLOAT32,
    data: Samples = None,
    skip_passes: SkipPasses = "",
    choices: ChoicesFile = None,
    input_shape: InputShapes = None,
    dim: Dims = None,
    inputs: InputFile = None,
    size: ImageSizes = None,
    save_as_external_data: Annotated[
        bool | None,
        typer.Option(help="Write weights to a file beside the model; by default as the original, or if too large."),
    ] = None,
    cpu: OptimizeCpu = CpuLevel.HOST,
    report: ReportPath = None,
    seed: Seed = 0,
    print_after_all: PrintAfterAll = False,
    print_after: PrintAfter = None,
    stop_after: StopAfter = "",
    elide: Elide = None,
) -> None:
    """Rewrite a model: folded, fused, without dead neurons.

    Duplicate neurons are merged; unsupported operators are kept unchanged. Layers whose neurons form unconnected parts,
    in any order, are computed in groups where that is predicted to be faster for every batch. The result has standard
    operators; the table shows the changes and the gain.

    For the target ort, sparse layers become nodes with functions, which any onnxruntime runs, and which are fast where
    our library is registered: redpebble.get_library_path() in Python, or OUT.so, which --library writes, in any
    program.

    A folder of onnxruntime-genai becomes another one: its decoder is optimized, the rest is copied, and with --library
    its configuration names the native code.
    """
    output = new_folder(output) if model.is_dir() else new_model(output)
    from ..driver.compiler import with_choices
    from ..options import Options
    from ..tuning.measure_kernels import Tuning
    from ..verification.compare import CheckPlan
    from ..verification.feeds import InputChoice
    from ..verification.oracle import Tolerance
    from .commands import OptimizeRequest, OutputFiles, optimize_model
    from .decoders.genai_folder import optimize_folder
    from .inspection import Inspection

    choice = InputChoice(shapes(input_shape), sizes(dim), inputs)
    plan = CheckPlan(numbers(batch), check_runs, seed, Tolerance(rtol, atol), choice)
    elsewhere = cpu.elsewhere
    files = OutputFiles(
        output, save_as_external_data, report, library, elsewhere.architecture_name if elsewhere else ""
    )
    networks = target is not OptimizeTarget.PORTABLE
    samples = samples_of(precision, data)
    options = Options(
        "optimize",
        skip_passes=words(skip_passes),
        sparse_networks=networks,
        rows=rows,
        dense_codes=not library,
        samples=samples,
    )
    options = replace(with_choices(options, Choices.read(choices)), bfloat=precision is Precision.BFLOAT16)
    if elsewhere is not None:
        options = replace(options, tuning=Tuning.predicted(elsewhere, None))
    request = OptimizeRequest(model, options, files, sizes(size))
    inspection = Inspection(print_after_all, tuple(print_after or ()), stop_after, elide)
    run = optimize_folder if model.is_dir() else optimize_model
    raise typer.Exit(0 if run(request, plan, inspection) else 1)


@app.command("compile")
def compile_model(
    model: ModelPath,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the code, or the IR, to a file.", callback=new_file),
    ] = None,
    threads: Annotated[int, typer.Option(help="The most threads that a call may use.")] = 1,
    target: Annotated[CpuLevel, typer.Option(help="The CPU that the code is for.")] = CpuLevel.HOST,
    size: ImageSizes = None,
    tune: Annotated[bool, typer.Option("--tune", help="Measure kernels, and choose by the clock.")] = False,
    drop_dead_rows: DropDeadRows = False,
    skip_passes: SkipPasses = "",
    choices: ChoicesFile = None,
    reorder_seconds: ReorderSeconds = 0.0,
    schedule_seconds: ScheduleSeconds = 0.0,
    print_after_all: PrintAfterAll = False,
    print_after: PrintAfter = None,
    stop_after: StopAfter = "",
    elide: Elide = None,
    report: ReportPath = None,
) -> None:
    """Compile a model into the cache; show how each layer runs.

    redpebble.compile takes it from there.
    """
    from ..driver.compiler import with_choices
    from ..options import Options
    from .commands import CompileRequest, compile_and_print
    from .inspection import Inspection

    options = Options(
        threads=threads,
        drop_dead_rows=drop_dead_rows,
        skip_passes=words(skip_passes),
        reorder_seconds=reorder_seconds,
        schedule_seconds=schedule_seconds,
    )
    options = with_choices(options, Choices.read(choices))
    request = CompileRequest(model, options, target.target, tune, output, report, sizes(size))
    compile_and_print(request, Inspection(print_after_all, tuple(print_after or ()), stop_after, elide))


@app.command()
def zoo(
    spec: Annotated[str, typer.Argument(metavar="NAME(param=value,...)", help="What to build.")] = "",
    target: Annotated[
        Path | None, typer.Argument(metavar="OUT.onnx", help="The same as --output.", callback=new_file)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where the model goes.", callback=new_file),
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the models.")] = False,
    int8: Annotated[
        bool, typer.Option("--int8", help="Layers with zeros in eight bits, where they gain: sparse sentence encoders.")
    ] = False,
    seed: Seed = 0,
    report: ReportPath = None,
) -> None:
    """Write a model of the zoo, or list it.

    `compact(widths=(..), density=.., memory=M)` is an MLP that moves no value twice.

    Inference of a compact model with a fast memory of M values or more reads every weight, bias and input once and
    writes every output once: an architecture for a given cache. `explain` and `schedule` find the order that does so.
    """
    from .zoo_commands import list_zoo, write_zoo_model

    if list_all or not spec:
        list_zoo(report)
        return
    write_zoo_model(spec, output or target, seed, report, int8=int8)


for _command in (check, bench, tune, prune, distil, finetune, explain, schedule, partition, run, simulate):
    app.command()(_command)
app.add_typer(cache_app, name="cache")


def _end(number: int, _: FrameType | None) -> NoReturn:
    """Remove unfinished files, then end with one line and the exit code that shells give."""
    print(f"error: ended by {signal.Signals(number).name}", file=sys.stderr)
    if run.__name__ in sys.argv[1:]:
        # the others would wait in MPI's start for a rank that has not come there
        end_ranks(128 + number)
    raise SystemExit(128 + number)


def _say(message: Warning | str, *_: object) -> None:
    print(f"warning: {' '.join(str(message).split())}", file=sys.stderr)


@runtime_checkable
class UsageFault(Protocol):
    """Error of a command line that its parser found; versions of typer have it from different packages."""

    exit_code: int

    def format_message(self) -> str:
        """Return the message."""
        ...


def _sentence(message: str) -> str:
    """Return a message in the form of other errors: one line, lower case, no full stop."""
    words = " ".join(message.replace("Value error, ", "").split()).rstrip(".")
    return words[0].lower() + words[1:]


def _ordered(words: Sequence[str]) -> list[str]:
    """Return a command line with the global options moved before the command: they may stand anywhere.

    JSON that is shown is a report of the command that goes to standard output. `--bisect` alone writes to a file of its
    name: options of typer cannot stand with and without a value.
    """
    asked: list[str] = []
    for word, following in zip(words, [*words[1:], "--"], strict=False):
        names = [word, LEAST] if word == "--bisect" and following.startswith("-") else [word]
        asked += names if word != "--json" else []
    report = () if "--json" not in words else ("--report", str(STANDARD_OUTPUT))
    return [*sorted(asked, key=lambda word: word not in ANYWHERE), *report]


def _silence_readers() -> None:
    """Silence the messages of libraries that read a model, so that one line of ours stands alone; -v shows them."""
    for name in ("onnx", "onnx_ir", "onnxscript"):
        warnings.filterwarnings("ignore", module=rf"{name}\b")
        logging.getLogger(name).addHandler(logging.NullHandler())


def main() -> None:
    """Run the command line; an input error is one line on standard error."""
    handlers = {number: signal.signal(number, _end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with limited_memory(available_memory()), warnings.catch_warnings():
            warnings.showwarning = _say
            _silence_readers()
            raise SystemExit(_exit_code(_ordered(sys.argv[1:])))
    except Exception as error:
        if isinstance(error, UsageFault):
            if error.format_message().lstrip().startswith(HELP):
                print(error.format_message(), file=sys.stderr)
                raise SystemExit(2) from None
            line = _sentence(error.format_message())
            line += _where_listed() if line.startswith("no such command") and line.endswith("'") else ""
        elif isinstance(error, OSError) and error.strerror and error.filename:
            line = f"{str(error.filename)!r}: {error.strerror.lower()}"
        elif isinstance(error, _reported_errors()):
            line = " ".join(str(error).split()) or type(error).__name__
            line = "; ".join([line, *getattr(error, "__notes__", ())])
        else:
            traceback.print_exc()
            raise SystemExit(OWN_FAULT) from None
        print(f"error: {line}", file=sys.stderr)
        raise SystemExit(2) from None
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _where_listed() -> str:
    """Return the command whose help lists the commands to choose from."""
    group = next((word for word in sys.argv[1:] if word == "cache"), "")
    return f"; redpebble {group} -h lists all" if group else "; redpebble -h lists all"


def _exit_code(arguments: Sequence[str]) -> int:
    """Run a command, and return the exit code: 1 only for a comparison that failed."""
    try:
        return app(arguments, standalone_mode=False) or 0
    except SystemExit as end:
        # what prints ends with 1 where nobody reads it any more, as in `redpebble zoo --list | head -1`
        raise SystemExit(128 + signal.SIGPIPE if end.code == 1 else end.code) from None


def _reported_errors() -> tuple[type[Exception], ...]:
    """Return the errors that are the input's fault; imported late, so that ranks of `run` start quickly."""
    from xdsl.utils.exceptions import DiagnosticException

    from ..foundation.errors import RedpebbleError

    return RedpebbleError, DiagnosticException, ValueError, OSError, MemoryError, RecursionError
