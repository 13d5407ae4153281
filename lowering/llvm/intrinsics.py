"""Functions that LLVM knows by name, declared once in a module."""

from collections.abc import Sequence

from llvmlite import ir


def intrinsic(builder: ir.IRBuilder, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
    """Return the function of a name in the module that is built."""
    known = builder.module.globals.get(name)
    if known is None:
        return ir.Function(builder.module, ir.FunctionType(result, arguments), name)
    assert isinstance(known, ir.Function)
    return known


def call_intrinsic(builder: ir.IRBuilder, name: str, result: ir.Type, operands: Sequence[ir.Value]) -> ir.Value:
    """Return what the function of a name makes of operands, whose types are those of its arguments."""
    return builder.call(intrinsic(builder, name, result, [operand.type for operand in operands]), operands)
