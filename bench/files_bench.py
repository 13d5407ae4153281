"""ONNX files as they were published, pruned by magnitude, in sessions: ours beside onnxruntime's, in the same rounds.

`python -m redpebble.bench.files_bench FILE.onnx[:NAME=SIZE,...] ... [--sparsities .9,.7] [--seconds 2]`; names are
those of axes that calls choose, 1 where none is told. A share of the weights of each linear layer, recurrence and
convolution becomes zero, but for the convolutions of pictures. On one thread, by the time of the thread; no time of a
wrong result is shown.
"""

import time
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import onnx
import typer
from onnx import numpy_helper

from ..models.exports.stored import pruned_names, random_feeds
from ..models.pruned_weights import magnitude_mask
from ..ort.sized_session import prepare_for
from ..verification.measuring import Budget, interleave
from .results.page_tables import PageTable, Write, ratio_text
from .suites.real_networks import Sessions, check_results

FILES: Final = PageTable("published files", ("file, sizes",))


def pruned(path: Path, sparsity: float) -> onnx.ModelProto:
    """Return a model whose weights are zero but for the largest ones of each."""
    model = onnx.load_from_string(path.read_bytes())
    names = pruned_names(model.graph)
    for tensor in model.graph.initializer:
        if tensor.name in names and tensor.data_type == onnx.TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(array * magnitude_mask(array, sparsity), tensor.name))
    return model


def ratio_of(path: Path, sizes: dict[str, int], sparsity: float, budget: Budget) -> float:
    """Return how many times as fast ours is, by the fastest rounds.

    Raises:
        ValueError: a result differs from onnxruntime's.
    """
    model = pruned(path, sparsity)
    free = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim}
    feeds = random_feeds(model, dict.fromkeys(free, 1) | sizes)
    sessions = Sessions.of(model, 1)
    prepare_for(sessions.ours, feeds)
    check_results(path.name, *(session.run(None, feeds) for session in sessions))
    calls = {name: partial(session.run, None, feeds) for name, session in sessions._asdict().items()}
    times = interleave(calls, budget)
    return times["original"].min_us / times["ours"].min_us


def main(
    files: Annotated[list[str], typer.Argument(help="Models, and sizes behind a colon.")],
    sparsities: Annotated[str, typer.Option(help="Shares of zeros.")] = "0.9,0.7",
    seconds: Annotated[float, typer.Option(help="Time for each.")] = 2.0,
    *,
    write: Write = False,
) -> None:
    """Print a row for each file, a column for each share of zeros."""
    budget = Budget(seconds, clock=time.thread_time)
    with FILES.rows(*sparsities.split(","), write=write) as add:
        for file in files:
            name, _, words = file.partition(":")
            sizes = {axis: int(size) for axis, _, size in (one.partition("=") for one in words.split(",") if one)}
            ratios = (ratio_of(Path(name), sizes, float(share), budget) for share in sparsities.split(","))
            add(" ".join([Path(name).stem, *words.split(",")]).strip(), *map(ratio_text, ratios))


if __name__ == "__main__":
    typer.run(main)
