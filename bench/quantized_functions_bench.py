"""Quantized models that `optimize` wrote, in onnxruntime without our library, beside the originals in the same rounds.

`python -m redpebble.bench.quantized_functions_bench [mlp] [resnet_18] [minilm_size] [--sparsity .9] [--batches 1,8,128]
[--seconds 2] [--thread-time]`: what runs there are the functions of our nodes, in standard operators. `mlp` are layers
of 768-1024-768-256 neurons in the forms of onnxruntime's quantizer, with one scale a tensor or one an output; others
are exports of torch's exporter, with one image, or one text of 128 tokens. One thread. In each line: the time of the
original, how often that of the other one fits into it, and the share of outputs that are the same bits.
"""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import Annotated, Final, NamedTuple

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import typer
from onnxruntime.quantization import QuantType

import redpebble

from ..models.exports.stored import random_feeds, stored_export
from ..tools.console.console import console
from ..verification.measuring import Budget, interleave
from .library_bench import network, one_thread
from .quantized_images_bench import Feed, Types, quantized
from .quantized_transformers_bench import as_quantized, feed_of

SIZES: Final = [768, 1024, 768, 256]

UNSIGNED, SIGNED = QuantType.QUInt8, QuantType.QInt8

FORMS: Final = [
    ("qdq", UNSIGNED, SIGNED),
    ("qdq", SIGNED, SIGNED),
    ("qdq", UNSIGNED, UNSIGNED),
    ("operator", UNSIGNED, SIGNED),
    ("operator", SIGNED, SIGNED),
    ("dynamic", UNSIGNED, SIGNED),
    ("dynamic", UNSIGNED, UNSIGNED),
]


class Case(NamedTuple):
    """A quantized model and what it is given."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Feed]


def cases(name: str, sparsity: float, batches: Sequence[int]) -> Iterator[Case]:
    """Yield the forms of a network."""
    if name == "mlp":
        yield from layer_cases(network(SIZES, sparsity), batches)
        return
    floats = stored_export(f"{name}.dynamo", sparsity)
    if any(node.op_type == "Conv" for node in floats.graph.node):
        free = {dim.dim_param for value in floats.graph.input for dim in value.type.tensor_type.shape.dim}
        feed = dict(random_feeds(floats, dict.fromkeys(free, 1)))
        for form in ("qdq", "operator", "dynamic"):
            yield Case(f"{name} {form}", quantized(floats, form, feed), {"1 image": feed})
        return
    for form in ("products", "all", "dynamic"):
        yield Case(f"{name} {form}", as_quantized(floats, form), {"1x128": feed_of(floats, 1, 128)})


def layer_cases(floats: onnx.ModelProto, batches: Sequence[int]) -> Iterator[Case]:
    """Yield a network of layers in each form."""
    rng = np.random.default_rng(0)
    feeds: dict[str, Feed] = {
        f"{batch} rows": {"x": rng.standard_normal((batch, SIZES[0]), dtype=np.float32)} for batch in batches
    }
    sample: Feed = {"x": rng.standard_normal((64, SIZES[0]), dtype=np.float32)}
    for (form, activations, weights), by_output in product(FORMS, (False, True)):
        types = Types(activations, weights, by_output)
        words = f"{form}, {activations.name[1:]} and {weights.name[1:]}, {'an output' if by_output else 'a tensor'}"
        yield Case(words, quantized(floats, form, sample, types=types), feeds)


def lines(case: Case, budget: Budget) -> Iterator[str]:
    """Yield a row of the table for each feed: medians."""
    written = onnx_ir.to_proto(redpebble.optimize(case.model, target="ort").model)
    original, ours = (
        onnxruntime.InferenceSession(model.SerializeToString(), one_thread(), providers=["CPUExecutionProvider"])
        for model in (case.model, written)
    )
    for words, feed in case.feeds.items():
        expected, found = (np.asarray(session.run(None, feed)[0]) for session in (original, ours))
        equal = np.count_nonzero(expected == found) / max(1, expected.size)
        calls = {"original": partial(original.run, None, feed), "ours": partial(ours.run, None, feed)}
        times = {name: timing.median_us for name, timing in interleave(calls, budget).items()}
        ratio = times["original"] / times["ours"]
        yield f"| {case.name} | {words} | {times['original']:.0f} | {ratio:.2f}x | {equal:.3f} |"


def main(
    names: Annotated[list[str] | None, typer.Argument(help="mlp, or exports such as resnet_18.")] = None,
    sparsity: Annotated[float, typer.Option(help="Share of zeros.")] = 0.9,
    batches: Annotated[str, typer.Option(help="Rows of mlp.")] = "1,8,128",
    seconds: Annotated[float, typer.Option(help="Time for each row.")] = 2.0,
    *,
    thread_time: Annotated[bool, typer.Option(help="Count the time of the thread on its core.")] = False,
) -> None:
    """Print a table of ratios."""
    budget = Budget(seconds, clock=time.thread_time if thread_time else time.perf_counter)
    console.print("| network | input | original us | ours | equal results |\n" + "|---" * 5 + "|")
    for name in names or ["mlp", "resnet_18", "minilm_size"]:
        for case in cases(name, sparsity, [int(batch) for batch in batches.split(",")]):
            for line in lines(case, budget):
                console.print(line, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    typer.run(main)
