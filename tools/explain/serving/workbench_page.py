"""The page of a workbench: one form, and what its settings make of the model; it has no script."""

import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from ....foundation.choices import NO_CHOICES
from ..lowering_levels import KindMovement, Level
from ..page.markup import Card, Column, Row, byte_text, cards, ratio_text, section, table, time_text
from ..page.style import STYLE
from .workbench import MOST_BATCH, MOST_LAYERS, LayerLine, PassLine, Settings, View, Workbench

OWN_STYLE: Final = """
.choose { display: flex; flex-wrap: wrap; gap: 8px 20px; align-items: center; margin: 8px 0 12px; }
input[type=number] { width: 9ch; } input, select, button { font: inherit; min-height: 32px; color: var(--ink);
  background: var(--card); border: 1px solid var(--faint); border-radius: 6px; padding: 2px 8px; }
input[type=checkbox] { min-height: 0; width: 18px; height: 18px; flex: none; accent-color: var(--accent); }
button { cursor: pointer; padding: 2px 16px; } button.main { background: var(--ink); color: var(--paper); }
.passes { list-style: none; margin: 0; padding: 0; columns: 2 32ch; }
.passes li { break-inside: avoid; } .passes label { align-items: start; padding: 3px 0; }
.passes small, .kernels small { color: var(--soft); display: block; }
.kernels { list-style: none; margin: 0; padding: 0; } .kernels li { display: grid; gap: 2px 14px; padding: 6px 0;
  grid-template-columns: minmax(0, 1fr) minmax(0, 40ch); align-items: center; border-bottom: 1px solid var(--line); }
.kernels span { overflow-wrap: anywhere; } select { width: 100%; } .kernels .chosen select { border-color:
  var(--accent); border-width: 2px; }
.fault { border-left: 4px solid var(--accent); padding: 8px 14px; background: var(--card); max-width: none;
  overflow-wrap: anywhere; }
pre { overflow-x: auto; background: var(--paper); padding: 10px 12px; border-radius: 6px; font-size: 13px; }
@media (max-width: 700px) { .kernels li { grid-template-columns: 1fr; } }
"""


def workbench_page(bench: Workbench, fault: str = "") -> str:
    """Return the page of a workbench; `fault` says what was wrong with the last request."""
    view = bench.view
    told = f'<p class="fault" role="alert">{escape(fault)}</p>' if fault else ""
    name = escape(bench.model.name)
    body = "".join(
        (
            f'<h1>{name}</h1><p class="lead">Leave passes out, choose kernels, and see what becomes of it.</p>{told}',
            f'<form method="post" action="set">{_call_section(view)}{_result_section(bench)}',
            f"{_passes_section(bench.passes, view.settings)}{_kernel_section(bench)}</form>",
            _movement_section(view),
            _save_section(bench),
        )
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name} on the workbench</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}{OWN_STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>\n"
    )


BUTTONS: Final = (
    '<button class="main" name="do" value="apply">Apply</button><button name="do" value="measure">Measure</button>'
    '<button name="do" value="reset">As by default</button>'
)


def _call_section(view: View) -> str:
    batch, threads = view.settings.batch, view.settings.threads
    fields = (
        f'<label>Batch <input type="number" name="batch" min="1" max="{MOST_BATCH}" value="{batch}"></label>'
        f'<label>Threads <input type="number" name="threads" min="1" value="{threads}"></label>{BUTTONS}'
    )
    note = "Predictions follow when the settings are applied. Measuring takes a few seconds and holds this machine."
    return section("call", "The call", note, f'<div class="choose">{fields}</div>')


def _result_section(bench: Workbench) -> str:
    view = bench.view
    batch = view.settings.batch
    first, before, after = (
        level.total(batch) for level in (view.before.levels[0], view.before.levels[-1], view.after.levels[-1])
    )
    shown = [
        Card(
            "Predicted by default",
            time_text(before.predicted_us),
            f"dense, one by one: {time_text(first.predicted_us)}",
        ),
        Card("Predicted as chosen", time_text(after.predicted_us), _against(before.predicted_us, after.predicted_us)),
        Card("Moved as chosen", byte_text(after.moved_bytes), f"by default {byte_text(before.moved_bytes)}"),
    ]
    measured = ""
    if bench.measured is not None:
        base = bench.measured.timings["onnxruntime"].min_us
        rows = [
            Row("", (name, time_text(one.median_us), time_text(one.min_us), ratio_text(base / one.min_us)))
            for name, one in bench.measured.timings.items()
        ]
        columns = [Column("call", "word"), Column("median"), Column("fastest"), Column("times as fast")]
        measured = table(
            f"Measured here, batch {batch}, {view.settings.threads} thread{'s' * (view.settings.threads > 1)}",
            columns,
            rows,
        )
        measured += f"<p>Outputs differ from onnxruntime's by {bench.measured.difference:.2g} at most.</p>"
    note = "Predictions are those of layers and what is around them, on one thread; measured times are of whole calls."
    return section("result", "What comes of it", note, cards(shown) + measured)


def _against(before: float, after: float) -> str:
    if not before or not after or abs(after / before - 1) < 0.005:
        return "the same"
    return f"{abs(100 * after / before - 100):.0f} % {'less' if after < before else 'more'}"


def _passes_section(passes: Sequence[PassLine], settings: Settings) -> str:
    lines = (
        f'<li><label><input type="checkbox" name="pass" value="{escape(one.name)}"'
        f"{'' if one.name in settings.skipped else ' checked'}><span>{escape(one.name)}"
        f"<small>{escape(one.what)}</small></span></label></li>"
        for one in passes
    )
    note = "Without a check mark a pass is left out. Passes that native code cannot do without are not listed."
    return section("passes", "Passes", note, f'<ul class="passes">{"".join(lines)}</ul>')


def _kernel_section(bench: Workbench) -> str:
    layers = bench.view.layers
    if not layers:
        return ""
    lines = "".join(_kernel_line(line, bench) for line in layers)
    most = f" The {MOST_LAYERS} layers that take longest." if len(layers) == MOST_LAYERS else ""
    note = (
        "Times are of one tile, whose width stands beside the layer: as priced and, after Measure, by the clock. A "
        f"choice holds for tiles of this width.{most}"
    )
    return section("kernels", "Kernels", note, f'<ul class="kernels">{lines}</ul><div class="choose">{BUTTONS}</div>')


def _kernel_line(line: LayerLine, bench: Workbench) -> str:
    wanted = bench.view.settings.wishes.get((line.name, line.width), "")
    priced = line.priced[line.width]
    options = [f'<option value="">{priced}, as priced: {_times(priced, line, bench)}</option>']
    for family in sorted(line.predicted_us, key=line.predicted_us.__getitem__):
        mark = " selected" if family == wanted else ""
        options.append(f'<option value="{family}"{mark}>{family}: {_times(family, line, bench)}</option>')
    field = escape(f"kernel:{line.width}:{line.name}")
    chosen = ' class="chosen"' if wanted else ""
    size = f"{line.inputs:,} → {line.outputs:,}, {100 * line.density:.3g} % of the weights"
    return (
        f"<li{chosen}><span>{escape(line.name)}<small>{size}, tiles of {line.width} {line.unit}</small></span>"
        f'<select name="{field}" aria-label="Kernel of {escape(line.name)}">{"".join(options)}</select></li>'
    )


def _times(family: str, line: LayerLine, bench: Workbench) -> str:
    clock = bench.kernel_us.get((line.key, line.width, family))
    return time_text(line.predicted_us[family]) + ("" if clock is None else f", measured {time_text(clock)}")


MOVED: Final = (
    Column("behind the pass", "word"),
    Column("moved by default"),
    Column("as chosen"),
    Column("inside of tiles"),
    Column("as chosen"),
    Column("predicted"),
    Column("as chosen"),
)


def _movement_section(view: View) -> str:
    """Return the levels of both ways side by side; a level that one way does not have is that before it."""
    batch = view.settings.batch
    before, after = ({level.name: level for level in one.levels} for one in (view.before, view.after))
    names = [*before]
    for place, name in enumerate(after):
        if name not in before:
            names.insert(min(place, len(names)), name)
    rows: list[Row] = []
    last: list[KindMovement | None] = [None, None]
    for name in names:
        last = [_at(levels, name, batch) or known for levels, known in zip((before, after), last, strict=True)]
        cells = [f(one) if one else "" for f in (_moved, _cached, _predicted) for one in last]
        rows.append(Row("", (name, *cells)))
    note = (
        "Bytes that ops read and write behind each pass that changes the model, those that stay in the cache between "
        "layers of a tile, and the predicted time: by default, and with what was chosen."
    )
    return section("movement", "Data movement, level by level", note, table(f"Batch of {batch}", MOVED, rows))


def _at(levels: Mapping[str, Level], name: str, batch: int) -> KindMovement | None:
    return levels[name].total(batch) if name in levels else None


def _moved(one: KindMovement) -> str:
    return byte_text(one.moved_bytes)


def _cached(one: KindMovement) -> str:
    return byte_text(one.cached_bytes)


def _predicted(one: KindMovement) -> str:
    return time_text(one.predicted_us)


def _save_section(bench: Workbench) -> str:
    choices, model = bench.view.choices, shlex.quote(bench.model.name)
    if choices == NO_CHOICES:
        return section("save", "Take it along", "", "<p>Nothing was chosen: all is as it is compiled by default.</p>")
    threads = f" --threads {bench.view.settings.threads}" if bench.view.settings.threads > 1 else ""
    lines = [
        f"redpebble compile {model} --choices choices.json{threads}",
        f"redpebble optimize {model} OUT.onnx --library --choices choices.json",
        f'redpebble.session("{bench.model.name}", choices="choices.json")',
    ]
    if not choices.kernels:
        lines.insert(0, f"redpebble compile {model} --skip-passes {','.join(choices.skip_passes)}{threads}")
    shown = escape("\n".join(lines))
    link = '<p><a href="choices.json" download>choices.json</a> holds the passes left out and the kernels chosen:</p>'
    note = "Of the passes, optimize and sessions leave out those that run there."
    return section(
        "save",
        "Take it along",
        note,
        f'{link}<pre tabindex="0">{escape(choices.text)}</pre><pre tabindex="0">{shown}</pre>',
    )
