"""The story of a model as a file: JSON, or the page."""

import shlex
import sys
from datetime import date
from pathlib import Path

from ... import __version__
from ...foundation.atomic_files import write_text
from ...frontend.import_model import Source
from ...options import Options
from ...tuning.calibration import cpu_model
from ..json_reports import write_report
from .explanation import Explanation, explanation_report
from .lowering_levels import levels_report, lowering_of
from .page.page import explain_page
from .story import Origin, Story, layer_times


def story_of(named: tuple[str, Source], explanation: Explanation, options: Options, gain: str = "") -> Story:
    """Return the story of a model with a name; its orders are explained and its layers reported; `gain` begins it.

    Raises:
        ModelError: the model is unreadable.
    """
    name, model = named
    lowering = lowering_of(model, options)
    return Story(
        name=name,
        origin=Origin(__version__, f"redpebble {shlex.join(sys.argv[1:])}", cpu_model(), str(date.today())),
        machine=options.machine,
        lowering=lowering,
        layer_times={
            batch: layer_times(
                explanation.report, [rows.get(layer.name, batch) for layer in explanation.report], lowering.left
            )
            for batch, rows in lowering.rows.items()
        },
        explanation=explanation,
        gain=gain,
    )


def write_story(report: Path, story: Story) -> None:
    """Write a story as the page, where the file ends in .html, or else as JSON.

    Raises:
        OSError: the file cannot be written.
    """
    if report.suffix == ".html":
        write_text(report, explain_page(story))
        return
    attentions = [line.report() for line in story.attentions]
    levels = levels_report(story.lowering)
    report_of = {**explanation_report(story.explanation), "attentions": attentions, "levels": levels}
    write_report(report, "explain", report_of)
