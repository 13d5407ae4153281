"""`explain FOLDER`: bytes that a decoder reads for each token, beside the least that any order of the work moves.

A token reads each weight once, and keys and values of all places before it: nothing of that is used twice. What is
least is then each weight that is not zero, in its own bits, and the places of those, in as many bits as they have
information; the roof is how fast the level of memory that holds all of it yields bytes.
"""

from collections.abc import Iterator, Sequence
from math import log2, prod
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from rich.table import Table

from ...dialect.attributes.few_bits import ROUNDED_INPUTS
from ...dialect.reports.layer_numbers import ANY_TILE
from ...frontend.reading.model_source import read_model
from ...kernels.formats import code_slots
from ...kernels.machine import Machine
from ...kernels.work import Layer
from ...runtime.jit import host_target
from ...runtime.store.cache import default_folder
from ...sparse.csr import stored_bytes
from ...sparse.densities import STORED_CODES
from ...tuning.calibration import STREAM, STREAM_SECONDS, cpu_model, stream_times
from ...tuning.kernel_timing import KernelClock
from ...tuning.machines import measured_before, of_this_cpu, with_stream_times
from ...verification.decoder_inputs import DecoderInputs
from ..console.console import console
from ..console.working import working
from ..json_reports import write_report
from .page.markup import byte_text

CONTEXTS: Final = (128, 1024)
"""Places before a token, and tokens of a prompt."""


class Part(NamedTuple):
    """Bytes that a token reads of a part of a decoder."""

    name: str
    weights: int
    nonzeros: int
    runtime_bytes: float
    """As onnxruntime reads the file."""
    kernel_bytes: float
    """As our kernels read it where its layers are taken."""
    least_bytes: float

    def with_other(self, other: "Part") -> "Part":
        """Return both parts as one."""
        return Part(self.name, *(one + two for one, two in zip(self[1:], other[1:], strict=True)))  # pyright: ignore[reportArgumentType]


def decoder_parts(model: ir.Model, inputs: DecoderInputs) -> list[Part]:
    """Return layers, head and embeddings of a decoder."""
    found = dict[str, Part]()
    head = model.graph.outputs[0]
    for node in model.graph:
        name = "head" if head in node.outputs else "layers"
        for part in _parts_of(node, name, inputs):
            found[part.name] = found[part.name].with_other(part) if part.name in found else part
    return list(found.values())


def past_part(inputs: DecoderInputs, context: int) -> Part:
    """Return keys and values of so many places, of which none is zero."""
    heads = sum(size for one in inputs.past if one.shape is not None and isinstance(size := one.shape[1], int))
    values = heads * inputs.features * context
    width = (inputs.past[0].dtype or ir.DataType.FLOAT).itemsize
    return Part(f"a past of {context:,}", values, values, *(3 * (float(width * values),)))


def _parts_of(node: ir.Node, name: str, inputs: DecoderInputs) -> Iterator[Part]:
    if node.op_type in ("Gather", "GatherBlockQuantized") and inputs.ids in node.inputs:
        table = _constant(node, 0)
        if table is not None:
            row = prod(table.shape[1:]) * table.dtype.itemsize
            yield Part("embeddings", prod(table.shape[1:]), prod(table.shape[1:]), *(3 * (float(row),)))
    elif node.op_type == "MatMulNBits":
        yield _of_codes(node, name)
    elif node.op_type in ("MatMul", "Gemm"):
        weight = _constant(node, 1)
        if weight is not None and weight.ndim == 2:
            width, nonzeros = weight.dtype.itemsize, int(np.count_nonzero(weight))
            dense = float(width * weight.size)
            least = width * nonzeros + places_bytes(weight.size, nonzeros)
            kernel = min(dense, stored_bytes(nonzeros, weight.size))
            yield Part(name, weight.size, nonzeros, dense, kernel, min(dense, least))


def _of_codes(node: ir.Node, name: str) -> Part:
    inputs, outputs = (node.attributes.get_int(one, 0) for one in ("K", "N"))
    bits, group = node.attributes.get_int("bits", 4), node.attributes.get_int("block_size", 32)
    size, groups = inputs * outputs, -(-inputs // group)
    scales = 4.0 * groups * outputs
    dense = size * bits / 8 + scales
    counts = _codes_of_outputs(node, inputs, outputs, bits, groups)
    nonzeros = int(counts.sum())
    takes = bits == 4 and node.attributes.get_int("accuracy_level", 0) == ROUNDED_INPUTS
    kernel = dense
    if takes and nonzeros <= STORED_CODES * size:
        kernel = code_slots.work(Layer(inputs, counts), ANY_TILE).stream_bytes
    least = nonzeros * bits / 8 + places_bytes(size, nonzeros) + scales
    return Part(name, size, nonzeros, dense, kernel, min(dense, least))


def _codes_of_outputs(node: ir.Node, inputs: int, outputs: int, bits: int, groups: int) -> NDArray[np.int64]:
    """Return how many codes of each output are not the zero of their group."""
    codes, zeros = _constant(node, 1), _constant(node, 3)
    if codes is None or bits not in (4, 8):
        return np.full(outputs, inputs, np.int64)
    steps = _unpacked(codes, bits).reshape(outputs, groups, -1)
    zero: NDArray[np.uint8] = np.full((outputs, groups), 1 << (bits - 1), np.uint8)
    if zeros is not None and zeros.dtype == np.uint8:
        zero = _unpacked(zeros.reshape(outputs, -1), bits)[:, :groups]
    return np.count_nonzero((steps != zero[..., np.newaxis]).reshape(outputs, -1)[:, :inputs], axis=1).astype(np.int64)


def _unpacked(array: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    if bits == 8:
        return array
    return np.stack([array & np.uint8(15), array >> np.uint8(4)], axis=-1).reshape(*array.shape[:-1], -1)


def places_bytes(size: int, nonzeros: int) -> float:
    """Return the information in which of so many places are used, in bytes: their entropy."""
    share = nonzeros / max(1, size)
    return 0.0 if share in (0.0, 1.0) else -size * (share * log2(share) + (1 - share) * log2(1 - share)) / 8


def _constant(node: ir.Node, index: int) -> NDArray[np.uint8] | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()


def explain_decoder(path: Path, report: Path | None) -> None:
    """Show the bytes of a token of a decoder, and the roof of the machine.

    Raises:
        ModelError: the decoder is unreadable.
        ValueError: it is no decoder.
    """
    with working("reading", path):
        model = read_model(path, any_version=True)
        inputs = DecoderInputs.of(model)
        if inputs is None:
            raise ValueError(f"{path}: expected a decoder of input_ids and past keys and values, got others")
        parts = decoder_parts(model, inputs)
    with working("measuring memory of this machine"):
        machine = measured_streams()
    pasts = [past_part(inputs, context) for context in CONTEXTS]
    console.print(_table([*parts, *pasts]))
    for context, past in zip(CONTEXTS, pasts, strict=True):
        total = _total([*parts, past])
        console.print(f"behind {context:,} places: {_roofs(total, machine)}", highlight=False, soft_wrap=True)
    rates = f"{1 / machine.l3_ns:.1f} GB/s from the last cache, {1 / machine.dram_ns:.1f} from memory"
    console.print(f"{cpu_model()}, one thread: {rates}", highlight=False, soft_wrap=True)
    content = [part._asdict() for part in (*parts, *pasts)]
    write_report(report, "explain", {"parts": content, "l3_ns": machine.l3_ns, "dram_ns": machine.dram_ns})


def measured_streams() -> Machine:
    """Return the machine with the measured time of a byte in loops: that of `redpebble tune`, or of half a second."""
    target, known = host_target(), measured_before(default_folder())
    if known is not None:
        return known
    times = stream_times(KernelClock([STREAM], target), STREAM_SECONDS)
    return with_stream_times(of_this_cpu(target.lanes), times)


def _total(parts: Sequence[Part]) -> Part:
    first, *others = parts
    for other in others:
        first = first.with_other(other)
    return first


def _roofs(total: Part, machine: Machine) -> str:
    words = list[str]()
    for who, count in (
        ("onnxruntime", total.runtime_bytes),
        ("our kernels", total.kernel_bytes),
        ("the least", total.least_bytes),
    ):
        level, nanoseconds = level_of(count, machine)
        most = 1e9 / (count * nanoseconds)
        words.append(f"{who} {byte_text(count)} from {level}, at most {most:,.0f} tokens a second")
    return "; ".join(words)


def level_of(count: float, machine: Machine) -> tuple[str, float]:
    """Return the level of memory that holds so many bytes from token to token, and its nanoseconds a byte."""
    return ("memory", machine.dram_ns) if count > machine.l3_bytes else ("the last cache", machine.l3_ns)


def _table(parts: Sequence[Part]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("bytes a token")
    for header in ("values", "not zero", "onnxruntime", "our kernels", "at least"):
        table.add_column(header, justify="right")
    for part in parts:
        share = f"{100 * part.nonzeros / max(1, part.weights):.0f} %"
        table.add_row(part.name, f"{part.weights:,}", share, *map(byte_text, part[3:]))
    return table
