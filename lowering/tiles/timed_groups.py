"""Groups of layers that run depth first, each as a function of its own, to be measured."""

from collections.abc import Sequence

from llvmlite import ir

from ..cpu_target import CpuTarget
from ..llvm.builder import I64, POINTER, Code
from ..neurons.connection_kernel import NetworkForm
from ..neurons.neuron_kernel import neuron_loop
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

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument], loop: ir.Function = loop) -> None:
            builder.call(loop, list(args))

        code.function(group_symbol(width), [POINTER, POINTER, POINTER, I64], body, exported=True)
    return str(code.module)
