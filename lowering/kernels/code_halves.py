"""The kernel of `code_bits` for weights of four bits whose zeros are stored, too."""

from llvmlite import ir

from ..llvm.builder import Code
from . import code_bits
from .kernel_form import LinearForm


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return the kernel for rows apart as `apart_of` says."""
    return code_bits.emit(code, form, code_bits.ZEROS_TOO)


def emit_apart(code: Code, form: LinearForm) -> ir.Function:
    """Return the same with three more arguments: see `code_bits`."""
    return code_bits.emit_apart(code, form, code_bits.ZEROS_TOO)
