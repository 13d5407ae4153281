"""The share of zeros above which a layer gains: a session of ours beside onnxruntime at many numbers of rows.

`python -m redpebble.bench.gate_bench [--shapes 768x768,1024x1024] [--sparsities .5,.6,.7]` prints the least
ratio of each layer over all numbers of rows, where that is, and single ones: medians of interleaved rounds, one
thread. `--few` measures up to 32 rows alone. With `--rows N` sessions are for N rows and only these are measured,
beside what `optimize` predicts for them.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx
import onnxruntime
import typer

import redpebble

from ..tools.benching.layer_cases import RandomLayer
from ..verification.measuring import Budget, interleave
from .results.page_tables import PageTable, Write

ROWS: Final = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20),
    *(24, 28, 32, 40, 48, 56, 64, 80, 100, 128, 192, 256),
)
SHOWN: Final = (1, 8, 32, 128)
FEW_ROWS: Final = (1, 2, 4, 6, 8, 12, 16, 24, 32)

HEADS: Final = ("layer", "taken", "predicted", "least")
GATES: Final = PageTable("layers in sessions", HEADS)
FEW: Final = PageTable("layers of few rows", HEADS)


class Gate(NamedTuple):
    """A layer, whether sessions take it, rows -> times as fast as onnxruntime, and what was predicted for them."""

    layer: RandomLayer
    taken: bool
    ratios: dict[int, float]
    predicted: float | None


def measure(layer: RandomLayer, rows: int, seconds: float, counts: Sequence[int] = ROWS) -> Gate:
    """Measure calls of `counts` rows in a session for `rows`, or for any number of rows where these are 0."""
    with TemporaryDirectory() as folder:
        model = onnx.ModelProto.FromString(layer.save(Path(folder)).read_bytes())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    content = model.SerializeToString()
    original = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    optimized = redpebble.optimize(model, target="ort", rows=rows)
    ours = redpebble.session(model, options, rows=rows)
    ratios: dict[int, float] = {}
    for count in counts:
        feeds = {"x": np.random.default_rng(2).standard_normal((count, layer.inputs), dtype=np.float32)}
        calls = {name: partial(one.run, None, feeds) for name, one in {"theirs": original, "ours": ours}.items()}
        times = interleave(calls, Budget(seconds))
        ratios[count] = times["theirs"].median_us / times["ours"].median_us
    predicted = optimized.gain.ratio if rows and optimized.gain else None
    return Gate(layer, bool(optimized.networks), ratios, predicted)


def layers_of(shapes: str, sparsities: str) -> Iterator[RandomLayer]:
    """Yield a layer for each shape, as 768x3072 for inputs x outputs, and each share of zeros."""
    for shape in shapes.split(","):
        inputs, outputs = map(int, shape.split("x"))
        yield from (RandomLayer(inputs, outputs, float(sparsity)) for sparsity in sparsities.split(","))


def cells_of(gate: Gate, counts: Sequence[int]) -> tuple[str, ...]:
    """Return the row of a layer."""
    worst = min(gate.ratios, key=gate.ratios.__getitem__)
    predicted = f"{gate.predicted:.2f}x" if gate.predicted else ""
    least = f"{gate.ratios[worst]:.2f}x at {worst}"
    ratios = (f"{gate.ratios[count]:.2f}x" for count in counts)
    return gate.layer.name, "yes" if gate.taken else "no", predicted, least, *ratios


def main(
    shapes: Annotated[str, typer.Option(help="Inputs and outputs of layers.")] = "768x768,1024x1024",
    sparsities: Annotated[str, typer.Option(help="Shares of zeros.")] = ".5,.6,.7",
    rows: Annotated[int, typer.Option(min=0, help="Rows that sessions are for; 0: any.")] = 0,
    seconds: Annotated[float, typer.Option(help="Measuring time for each layer and number of rows.")] = 0.4,
    *,
    few: Annotated[bool, typer.Option("--few", help="Measure one row to 32.")] = False,
    write: Write = False,
) -> None:
    """Measure layers in sessions and print the table."""
    measured = (rows,) if rows else FEW_ROWS if few else ROWS
    shown = SHOWN if measured == ROWS else measured
    with (FEW if few else GATES).rows(*map(str, shown), write=write) as add:
        for layer in layers_of(shapes, sparsities):
            add(*cells_of(measure(layer, rows, seconds, measured), shown))


if __name__ == "__main__":
    typer.run(main)
