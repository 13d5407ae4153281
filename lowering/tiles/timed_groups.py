"""Groups of layers that run depth first, each as a function of its own, to be measured."""

from collections.abc import Sequence

from llvmlite import ir

from ..cpu_target import CpuTarget
from ..llvm.builder import Code
from ..llvm.flow import call
from ..llvm.values import Floats, Ints, Number, Pointers
from ..neurons.neuron_kernel import NetworkForm, neuron_loop
from .depth_first_groups import LayerGroup


def group_symbol(width: int) -> str:
    """Return the name of the function for a width."""
    return f"group_{width}"


def group_kernels(group: LayerGroup, widths: Sequence[int], target: CpuTarget) -> str:
    """Return the LLVM IR of a module with a function `void (stream, slots, table of buffers, rows)` for each width."""
    code = Code(target, ir.Module("group"))
    activations = group.graph().activations
    for width in widths:
        loop = neuron_loop(code, NetworkForm(width, activations), group.transposed)

        @code.kernel(group_symbol(width), exported=True)
        def _(stream: Ints, slots: Floats, buffers: Pointers, rows: Number, loop: ir.Function = loop) -> None:
            call(loop, stream, slots, buffers, rows)

    return str(code.module)
