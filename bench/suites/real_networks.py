"""Real networks in onnxruntime with our kernels and without, as a table and a picture of README and documentation.

`python -m redpebble.bench.suites.real_networks` measures the graphs that torch's exporter wrote of published
architectures, in their published widths, with random weights of which 90 % are zeros; `--write` puts the table into
README.md and docs/index.md, and draws docs/pictures/real-networks.svg. Sessions take turns in one process. With
`published` it measures further networks of torchvision and timm, and a small one of each kind beside these.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import matplotlib as mpl
import numpy as np
import onnx
import onnx_ir
import onnxruntime
import typer
from matplotlib.figure import Figure

import redpebble

from ...foundation.atomic_files import write_text
from ...models.exports.published_networks import PUBLISHED
from ...models.exports.stored import random_feeds, stored_export
from ...tools.benching.machine import describe_machine
from ...tools.benching.results import is_disturbed
from ...tools.console.console import console
from ...verification.measuring import Budget, interleave
from ..results.page_tables import PageTable
from ..results.picture_themes import svg_of
from ..results.plots import STYLE

README: Final = Path("README.md")
INDEX: Final = Path("docs/index.md")
IN_README: Final = frozenset(
    ("MiniLM, 128 tokens", "BERT, 128 tokens", "GPT-2, next token after 127", "ResNet-50", "MobileNetV2")
)
"""Networks in the short table of README, without times; the page of documentation has all of them."""
PICTURE: Final = Path("docs/pictures/real-networks.svg")
BATCHES: Final = (1, 8)
TOLERANCE: Final = 1e-4
"""Largest error of an output, as a share of its largest value: no time of a wrong result is shown."""

TO: Final = "→"
"""Between before and after: browsers part "->", and units from their numbers, where a column is narrow."""


class RealNetwork(NamedTuple):
    """A stored export, and what it is for a reader."""

    export: str
    title: str
    sequence: int = 128
    past: int = 0


NETWORKS: Final = (
    RealNetwork("tabnet_base.dynamo", "TabNet"),
    RealNetwork("dlrm_base.dynamo", "DLRM, recommendation"),
    RealNetwork("mixer_small.dynamo", "MLP-Mixer S/16"),
    RealNetwork("gpt2_base.dynamo", "GPT-2, next token after 127", sequence=1, past=127),
    RealNetwork("minilm_size.dynamo", "MiniLM, 128 tokens"),
    RealNetwork("bert_base.dynamo", "BERT, 128 tokens"),
    RealNetwork("distilbert_base.dynamo", "DistilBERT, 128 tokens"),
    RealNetwork("t5_small.classic", "T5 encoder, 128 tokens"),
    RealNetwork("ft_transformer_base.dynamo", "FT-Transformer"),
    RealNetwork("deit_tiny.dynamo", "DeiT-Ti, images of 224 x 224"),
    RealNetwork("whisper_tiny.dynamo", "Whisper encoder, tiny"),
    RealNetwork("convnext_tiny.dynamo", "ConvNeXt-T"),
    RealNetwork("resnet_50.dynamo", "ResNet-50"),
    RealNetwork("resnet_18.dynamo", "ResNet-18"),
    RealNetwork("mobilenet_v1.dynamo", "MobileNetV1"),
    RealNetwork("mobilenet_v2.dynamo", "MobileNetV2"),
    RealNetwork("lstm_base.dynamo", "LSTM"),
)


KINDS: Final = (
    RealNetwork("nhwc_resnet.keras", "ResNet of Keras, channels last"),
    RealNetwork("waves.dynamo", "U-Net over 512 samples, group norms"),
    RealNetwork("latents.dynamo", "decoder of images, transposed convolutions"),
    RealNetwork("pitch.dynamo", "pitch of sound, windows of 512 samples"),
    RealNetwork("lines.dynamo", "recogniser of lines of text, 320 pixels wide", sequence=320),
    RealNetwork("letters.dynamo", "convolutions over 32 letters", sequence=32),
    RealNetwork("samples.dynamo", "convolutions over 16000 samples", sequence=16000),
    RealNetwork("frames.dynamo", "convolutions over 100 frames of features", sequence=100),
    RealNetwork("eeg.dynamo", "convolutions and an LSTM over 100 seconds of an EEG", sequence=100),
    RealNetwork("voice.dynamo", "detector of speech in 512 samples"),
)
"""A network of each kind beside those of the table, small ones."""

PUBLISHED_TOO: Final = "published"

RESULTS: Final = PageTable("results", ("network",), INDEX, of_machine=False)
SHORT_RESULTS: Final = PageTable("results", ("network",), README, of_machine=False)
FURTHER: Final = PageTable("published networks", ("network",))
"""The table of `published` is kept for each machine; those of users have one, of the machine measured last."""


def networks_of(names: Sequence[str]) -> list[RealNetwork]:
    """Return the networks to measure: those of the table, or those named."""
    if not names:
        return [*NETWORKS]
    kinds = [network for network in KINDS if PUBLISHED_TOO in names or network.export.partition(".")[0] in names]
    found = [*(network for network in NETWORKS if network.export.partition(".")[0] in names), *kinds]
    further = [name for name in PUBLISHED if name in names or PUBLISHED_TOO in names]
    return [*found, *(RealNetwork(f"{name}.dynamo", PUBLISHED[name].name) for name in further)]


@dataclass(frozen=True)
class Measured:
    """The times of a network in both sessions, in us, and the bytes of both files."""

    title: str
    batch: int
    threads: int
    original_us: float
    ours_us: float
    steady: bool
    original_bytes: int
    our_bytes: int
    sparsity: float = 0.9

    @property
    def ratio(self) -> float:
        """Speed, in times of that of the original."""
        return self.original_us / self.ours_us


def measure(network: RealNetwork, threads: int, seconds: float, sparsity: float) -> Iterator[Measured]:
    """Yield a row for each batch, of the fastest rounds.

    Raises:
        ValueError: a result differs from onnxruntime's.
    """
    proto = stored_export(network.export, sparsity)
    free = {dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim}
    stated = {"length": network.sequence} if "length" in free else None
    optimized = redpebble.optimize(proto, sizes=stated, target="ort").model
    sessions = Sessions.of(proto, threads, optimized)
    original_bytes, our_bytes = proto.ByteSize(), onnx_ir.to_proto(optimized).ByteSize()
    for batch in BATCHES:
        feeds = random_feeds(proto, _sizes(proto, network, batch))
        check_results(network.title, *(one.run(None, feeds) for one in sessions))
        calls = {name: partial(one.run, None, feeds) for name, one in sessions._asdict().items()}
        times = interleave(calls, Budget(seconds))
        steady = not any(is_disturbed(time.median_us, time.min_us) for time in times.values())
        original, ours = (times[name].min_us for name in ("original", "ours"))
        yield Measured(network.title, batch, threads, original, ours, steady, original_bytes, our_bytes, sparsity)


class Sessions(NamedTuple):
    """The sessions of a model that take turns."""

    original: onnxruntime.InferenceSession
    ours: onnxruntime.InferenceSession

    @staticmethod
    def of(proto: onnx.ModelProto, threads: int, optimized: onnx_ir.Model | None = None) -> "Sessions":
        """Return both sessions, of a model that was not `optimized` before or of what it became."""
        content = proto.SerializeToString()
        ours = redpebble.session(proto if optimized is None else optimized, _options(threads))
        return Sessions(
            onnxruntime.InferenceSession(content, _options(threads), providers=["CPUExecutionProvider"]), ours
        )


def _options(threads: int) -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # threads that spin while the other session's turn is on would take its cores
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.log_severity_level = 3
    return options


def _sizes(proto: onnx.ModelProto, network: RealNetwork, batch: int) -> dict[str, int]:
    known = {"batch": batch, "sequence": network.sequence, "length": network.sequence, "past": network.past}
    known["total"] = network.sequence + network.past
    names = {dim.dim_param for value in proto.graph.input for dim in value.type.tensor_type.shape.dim}
    return {name: known[name] for name in names if name}


def check_results(title: str, original: Sequence[object], ours: Sequence[object]) -> None:
    """Check that both sessions agree.

    Raises:
        ValueError: an output differs.
    """
    for expected, found in zip(original, ours, strict=True):
        scale = float(np.abs(np.asarray(expected)).max(initial=1e-30))
        error = float(np.abs(np.asarray(expected) - np.asarray(found)).max(initial=0.0)) / scale
        if error > TOLERANCE:
            raise ValueError(f"{title}: expected at most {TOLERANCE:.0e} from onnxruntime, got {error:.1e}")


def table(rows: Sequence[Measured], where: str, *, times: bool = True) -> list[str]:
    """Return the lines of the table, with times or the ratios alone; a star marks what others disturbed.

    `where` names the machine and the version of onnxruntime.

    Where rows of several sparsities are given, each has columns of its own.
    """
    shares = sorted({row.sparsity for row in rows}, reverse=True)
    columns = [(share, batch) for share in shares for batch in BATCHES]
    zeros = {share: f", {100 * share:.0f} % zeros" if len(shares) > 1 else "" for share in shares}
    heads = [f"batch {batch}{zeros[share]}{' (ms)' if times else ''}" for share, batch in columns]
    lines = [f"| network | {' | '.join(heads)} | file (MB) |", f"|---|{'---|' * (len(heads) + 1)}"]
    for title in dict.fromkeys(row.title for row in rows):
        of_title = {(row.sparsity, row.batch): row for row in rows if row.title == title}
        cells = [_cell(of_title[column], times=times) if column in of_title else "" for column in columns]
        one = next(iter(of_title.values()))
        sizes = f"{one.original_bytes / 1e6:.1f} {TO} {one.our_bytes / 1e6:.1f}"
        lines.append(f"| {title} | {' | '.join(cells)} | {sizes} |")
    return [*lines, "", _note(rows, where)]


def _cell(row: Measured, *, times: bool) -> str:
    took = f" ({_ms(row.original_us)} {TO} {_ms(row.ours_us)})" if times else ""
    return f"**{row.ratio:.1f}x**{took}{'' if row.steady else ' *'}"


def _ms(microseconds: float) -> str:
    milliseconds = microseconds / 1e3
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def _where(machine: Mapping[str, object]) -> str:
    return f"{machine['model']} ({machine['cpu']}), onnxruntime {machine['onnxruntime']}"


def _note(rows: Sequence[Measured], where: str) -> str:
    threads = f"{rows[0].threads} thread{'s' if rows[0].threads > 1 else ''}"
    disturbed = "" if all(row.steady for row in rows) else " * others used the machine meanwhile."
    shares = sorted({row.sparsity for row in rows}, reverse=True)
    zeros = " or ".join(f"{100 * share:.0f} %" for share in shares)
    pruned = f"{zeros} of the weights of linear layers and convolutions are zeros"
    return f"{pruned}; {where}, {threads}; fastest rounds.{disturbed}"


def picture(rows: Sequence[Measured]) -> Figure:
    """Return a bar for each network and batch: how many times as fast as onnxruntime at the largest sparsity."""
    rows = [row for row in rows if row.sparsity == max(one.sparsity for one in rows)]
    titles = [*dict.fromkeys(row.title for row in rows)][::-1]
    figure = Figure(figsize=(8, 0.5 + 0.45 * len(titles)), layout="constrained")
    axes = figure.add_subplot()
    for bar, (batch, color) in enumerate(zip(BATCHES, ("#3b4cc0", "#e9a03b"), strict=True)):
        of_batch = {row.title: row.ratio for row in rows if row.batch == batch}
        heights = [titles.index(title) + 0.2 - 0.4 * bar for title in of_batch]
        bars = axes.barh(heights, [*of_batch.values()], 0.38, color=color, label=f"batch {batch}")
        axes.bar_label(bars, [f"{ratio:.1f}x" for ratio in of_batch.values()], padding=3, fontsize=8)
    axes.axvline(1.0, color="#777777", lw=1, ls="--")
    axes.set_yticks(range(len(titles)), titles)
    axes.set_xlabel(f"times as fast as onnxruntime, {100 * rows[0].sparsity:.0f} % zeros")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=len(BATCHES))
    return figure


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Exports, such as bert_base, or published; else the table's.")
    ] = None,
    *,
    threads: Annotated[int, typer.Option(help="Threads of both sessions.")] = 1,
    seconds: Annotated[float, typer.Option(help="Measuring time for each network and batch.")] = 3.0,
    sparsity: Annotated[
        list[float] | None, typer.Option(help="Share of zeros in the weights; several have columns of their own.")
    ] = None,
    result: Annotated[Path | None, typer.Option(help="Rows that -o wrote, instead of measuring.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the rows as JSON, too.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Change README, documentation and picture.")] = False,
) -> None:
    """Measure real networks, print the table, and put it where users read it."""
    rows: list[Measured] = []
    machine = {**describe_machine(), "onnxruntime": onnxruntime.__version__}
    if result is not None:
        content = json.loads(result.read_text(encoding="utf-8"))
        machine, rows = content["machine"], [Measured(**row) for row in content["rows"]]
    for network, share in product(networks_of(names or []), sparsity or (0.9,)):
        if result is None:
            rows += measure(network, threads, seconds, share)
            print(
                *(f"{row.title}, batch {row.batch}: {row.ratio:.2f}x" for row in rows[-2:]), sep="; ", file=sys.stderr
            )
            if output is not None:  # after each network: a long measurement may be ended
                content = {"machine": machine, "rows": [asdict(row) for row in rows]}
                write_text(output, json.dumps(content, indent=2) + "\n")
    rows = by_ratio(rows)
    lines = table(rows, _where(machine))
    console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)
    if write and PUBLISHED_TOO in (names or []):
        FURTHER.write(table(rows, _where(machine), times=False))
    elif write:
        publish(rows, _where(machine))


def by_ratio(rows: Sequence[Measured]) -> list[Measured]:
    """Return rows with the network that gains most first."""
    best = {title: max(row.ratio for row in rows if row.title == title) for title in {row.title for row in rows}}
    return sorted(rows, key=lambda row: (-best[row.title], row.title, -row.sparsity, row.batch))


def publish(rows: Sequence[Measured], where: str) -> None:
    """Put the table into the pages, and draw the picture."""
    SHORT_RESULTS.write(table([row for row in rows if row.title in IN_README], where, times=False))
    RESULTS.write(table(rows, where))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        write_text(PICTURE, svg_of(picture(rows)))


if __name__ == "__main__":
    typer.run(main)
