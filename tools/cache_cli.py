"""The commands about what is kept on disk: `redpebble cache show`, `redpebble cache clean` and `redpebble tune`."""

from pathlib import Path
from typing import Annotated

import typer

from .cli_options import ReportPath, new_file

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
