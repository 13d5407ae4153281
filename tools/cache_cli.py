"""The commands about what is kept on disk: `redpebble cache show` and `redpebble cache clean`."""

import typer

from redpebble.tools.cli_options import ReportPath

cache_app = typer.Typer(no_args_is_help=True, help="Show or remove what is kept of compiled models.")


@cache_app.command()
def show(report: ReportPath = None) -> None:
    """Show the folder, how many files of which kind are kept there, their bytes, and the limit.

    REDPEBBLE_CACHE names another folder, REDPEBBLE_CACHE_LIMIT another limit, such as 500MB. Files that were used
    longest ago go when the limit is reached.
    """
    from redpebble.tools.cache_commands import show_cache

    show_cache(report)


@cache_app.command()
def clean(report: ReportPath = None) -> None:
    """Remove what can be made again: all but what `redpebble tune` measured, which `redpebble tune --reset` removes."""
    from redpebble.tools.cache_commands import clean_cache

    clean_cache(report)
